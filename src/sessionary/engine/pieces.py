"""Cutting a long text into pieces that a platform takes; nothing is lost."""

from sessionary.engine.context import EngineContext

_BREAKS = ("\n\n", "\n", " ")
_LEAST = 0.3


def pieces(text: str, longest: int) -> list[str]:
    """The text in pieces of at most so many characters, cut where a reader would pause."""
    found: list[str] = []
    while len(text) > longest:
        cut = _place(text, longest)
        found.append(text[:cut].rstrip() or text[:cut])
        text = text[cut:].lstrip("\n ") if text[cut - 1 : cut].isspace() else text[cut:]
    return [*found, text] if text or not found else found


def for_platform(text: str, platform: str, context: EngineContext) -> list[str]:
    """The text in as many deliveries as a platform's adapter wants; each may split its own again.

    Where the adapter stands in another process the text stays whole.
    """
    adapter = context.adapters.get(platform)
    return [text] if adapter is None else pieces(text, adapter.capabilities.longest_text)


def _place(text: str, longest: int) -> int:
    """Where to cut: after a paragraph, a line or a word, if that is not too early."""
    for sign in _BREAKS:
        place = text.rfind(sign, 0, longest - len(sign) + 1)
        if place >= longest * _LEAST:
            return place + len(sign)
    return longest
