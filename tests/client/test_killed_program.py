"""What a program leaves behind that was killed during a turn."""

import subprocess
import sys
from pathlib import Path

from sessionary import Sessionary

PROGRAM = """
import sys
from sessionary import Sessionary

with Sessionary(home=sys.argv[1], create=True) as client:
    with client.session("notes").turn("first") as turn:
        turn.append("assistant", "half an answer")
        print("running", flush=True)
        input()
"""


def test_the_next_program_can_begin_a_turn_at_once(tmp_path: Path) -> None:
    """It does not wait until the lease of the killed one has run out."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "running\n"
        program.kill()

    with Sessionary(home=str(tmp_path)) as client:
        chat = client.session("notes")
        with chat.turn("second") as turn:
            turn.append("assistant", "an answer")
        texts = [message.text for message in chat.messages()]

    assert texts == ["first", "half an answer", "second", "an answer"]
