"""Lines that were not said to the agent go along with the next message to it, and with that only."""

from sessionary.channels.observed import Observed
from sessionary.model.message import Message, Role, Text


class Door:
    """Takes messages in, or does not."""

    def __init__(self, answer: str = "a1") -> None:
        self.answer = answer
        self.texts: list[str] = []

    async def __call__(self, said: Message) -> str:
        self.texts.append(said.text)
        return self.answer


def said(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def overheard() -> Observed:
    observed = Observed()
    observed.note("here", "Ada", "the lamp is broken")
    return observed


async def test_lines_go_along_once() -> None:
    observed, door = overheard(), Door()

    await observed.give("here", said("what is broken?"), door)
    await observed.give("here", said("thanks"), door)

    assert "the lamp is broken" in door.texts[0]
    assert door.texts[1] == "thanks"


async def test_a_line_that_is_told_twice_is_noted_once() -> None:
    """A platform tells of a message again when its link got a preview, or when it heard no answer."""
    observed, door = Observed(), Door()
    for _ in range(2):
        observed.note("here", "Ada", "see https://example.org", id="m1")
    observed.note("there", "Ada", "see https://example.org", id="m1")

    await observed.give("here", said("what is it?"), door)
    observed.note("here", "Ada", "see https://example.org", id="m1")

    assert door.texts[0].count("example.org") == 1
    assert observed.lines("here") == ()
    assert len(observed.lines("there")) == 1


async def test_a_command_takes_no_lines_along_and_they_wait_on() -> None:
    observed, door = overheard(), Door()

    await observed.give("here", said("/title Lamps"), door)
    await observed.give("here", said("what is broken?"), door)

    assert door.texts[0] == "/title Lamps"
    assert "the lamp is broken" in door.texts[1]


async def test_a_stranger_makes_nothing_forgotten() -> None:
    observed = overheard()

    await observed.give("here", said("forget it"), Door(""))

    assert observed.lines("here") != ()
