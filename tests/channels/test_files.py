"""What is said of files that are left out: the same on every channel."""

import pytest

from sessionary.channels.files import MEGABYTE, MOST_TRIES, Failures, File, fetched, gone, too_large
from sessionary.errors import RetryLater
from sessionary.model.message import Text


def test_a_file_that_is_too_large_is_named_with_its_size_on_one_short_line() -> None:
    note = too_large("a\nb" + "x" * 300, 20 * MEGABYTE, 30 * MEGABYTE).text

    assert "\n" not in note
    assert len(note) < 250
    assert "(30.0 MB) is too large and was left out; at most 20 MB.]" in note


def test_a_file_that_is_not_given_out_is_named_with_the_reason() -> None:
    assert gone("a.png").text == "[The file “a.png” could not be fetched and was left out.]"
    assert gone("a.png", "HTTP 404.\n").text.endswith("left out: HTTP 404.]")


async def test_a_file_that_never_comes_is_left_out_after_some_tries() -> None:
    """Whoever waits for it for ever hears nothing else."""
    failures, file = Failures(), File("a.png", 3, "https://cdn.example/a.png")

    async def fetch(_: File) -> bytes:
        raise RetryLater("it cannot be reached", after=1)

    for _ in range(MOST_TRIES - 1):
        with pytest.raises(RetryLater):
            await fetched([file], MEGABYTE, fetch, failures)
    (part,), held = await fetched([file], MEGABYTE, fetch, failures)

    assert isinstance(part, Text)
    assert "could not be fetched" in part.text
    assert held == ()
