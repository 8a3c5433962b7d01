"""A `command` agent that asks for a tool by itself, and waits at a gate before it answers.

python -m tests.faults.turn_program PORT
"""

import json
import sys

from tests.faults.gates import pass_gate

if __name__ == "__main__":
    request = json.loads(sys.stdin.readline())
    chat = request["source"]["chat_id"]
    if not request.get("resumed"):
        call = {"type": "tool_call", "id": "own-1", "name": "look", "arguments": {"chat": chat}}
        print(json.dumps({"step": {"role": "assistant", "parts": [call]}}), flush=True)
    given = {name: request[name] for name in ("resumed", "steps", "unfinished") if name in request}
    pass_gate(int(sys.argv[1]), kind="gate", chat=chat, point="program", given=given)
    print(json.dumps({"reply": f"The program answers {chat}."}), flush=True)
