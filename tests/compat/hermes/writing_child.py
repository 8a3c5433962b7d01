"""A process of several threads that writes through `SessionDB` until it is killed.

Each answer it got is a line in a file, so that nothing it was promised can be forgotten.
"""

import os
import sys
import threading

from sessionary.compat.hermes.state import SessionDB

THREADS = 3


def write(db: SessionDB, name: str, report: int) -> None:
    """Speak in a session of one's own and in one that all share."""
    db.create_session(name, "cli")
    count = 0
    while True:
        count += 1
        session = name if count % 2 else "shared"
        text = f"{name}.{count}"
        if count % 7:
            numbers = [db.append_message(session, "user", text, tool_calls=[{"id": text}])]
        else:
            rows = [{"role": "user", "content": f"{text}.{half}"} for half in "ab"]
            numbers = db.append_messages_batch(session, rows)
        db.update_token_counts(session, input_tokens=1)
        line = f"{session} {text} {' '.join(map(str, numbers))}\n"
        os.write(report, line.encode())


def main(address: str, name: str, path: str) -> None:
    """Write until killed."""
    db = SessionDB(address)
    db.ensure_session("shared")
    report = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    threads = [
        threading.Thread(target=write, args=(db, f"{name}-{n}", report)) for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
