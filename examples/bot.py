"""A bot whose agent is a Python function: `python examples/bot.py "hello"`.

`bot/` is its home directory: `sessionary.toml` names the agent, and `clerk.py` beside it is the agent. Run it twice:
the second answer knows what was asked before.
"""

import argparse
from pathlib import Path

from sessionary import AgentFailed, Delta, Sessionary

FOLDER = Path(__file__).parent / "bot"


def main() -> None:
    """Ask the agent one question, print its answer while it is written, and what the conversation has cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question")
    parser.add_argument("--name", default="alice", help="the name of the conversation")
    parser.add_argument("--database", default=None, help="a path or a URL")
    given = parser.parse_args()
    question: str = given.question
    name: str = given.name
    database: str | None = given.database

    with Sessionary(database, home=FOLDER) as s:
        try:
            for event in s.ask_stream(question, session=name, agent="clerk"):
                if isinstance(event, Delta) and not event.thinking:
                    print(event.text, end="", flush=True)
        except AgentFailed as error:
            raise SystemExit(str(error)) from error
        print()
        head = s.session(name).head()
        print(f"{head.message_count} messages, {head.usage.output_tokens} tokens written")


if __name__ == "__main__":
    main()
