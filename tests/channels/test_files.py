"""What is said of files that are left out: the same on every channel."""

from hansard.channels.files import MEGABYTE, gone, too_large


def test_a_file_that_is_too_large_is_named_with_its_size_on_one_short_line() -> None:
    note = too_large("a\nb" + "x" * 300, 20 * MEGABYTE, 30 * MEGABYTE).text

    assert "\n" not in note
    assert len(note) < 250
    assert "(30.0 MB) is too large and was left out; at most 20 MB.]" in note


def test_a_file_that_is_not_given_out_is_named_with_the_reason() -> None:
    assert gone("a.png").text == "[The file “a.png” could not be fetched and was left out.]"
    assert gone("a.png", "HTTP 404.\n").text.endswith("left out: HTTP 404.]")
