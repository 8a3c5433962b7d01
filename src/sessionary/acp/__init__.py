"""The server for editors that speak the Agent Client Protocol over standard input and output.

`stdio` reads and writes the messages, `server` answers an editor's requests, `view` shows a session to the editor as it
goes on, `questions` asks in the editor what a turn asks people, and `choices` says what can be chosen for a session.
"""
