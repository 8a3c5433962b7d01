"""Appends messages from several threads and notes each one that was acknowledged."""

import os
import sys
import threading
from pathlib import Path

import sessionary

THREADS = 4
EACH = 60


def main(home: Path) -> None:
    acknowledged = os.open(home / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with sessionary.Sessionary(f"sqlite:///{home / 'sessionary.db'}") as client:

        def write(thread: int) -> None:
            chat = client.session(sessionary.Source(platform="web", chat_id=f"chat-{thread}"))
            for number in range(EACH):
                token = f"token-{thread}-{number}"
                # Of every size: a page, several pages, a blob.
                chat.append("user", f"{token} " + "x" * (number * 997 % 50_000))
                os.write(acknowledged, f"{token}\n".encode())

        threads = [threading.Thread(target=write, args=(each,)) for each in range(THREADS)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
