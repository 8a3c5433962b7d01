"""Appends while its disk fails and afterwards; prints the outcome of each."""

import json
import sys
from pathlib import Path

import sessionary


def main(home: Path) -> None:
    failing = home.parent / "failing"
    with sessionary.Sessionary(f"sqlite:///{home / 'sessionary.db'}") as client:
        chat = client.session(sessionary.Source(platform="web", chat_id="chat"))

        def say(text: str) -> str:
            try:
                chat.append("user", text, idempotency_key=text)
            except sessionary.SessionaryError as error:
                return str(getattr(error, "committed", "?"))
            return "yes"

        outcomes = [("before", say("before"))]
        failing.touch()
        outcomes += [("while", say("while")), ("still", say("still"))]
        failing.unlink()
        outcomes += [("while", say("while")), ("after", say("after"))]
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
