"""What a person wrote in a mail, apart from what the mail repeats. Pure."""

import re
from dataclasses import dataclass

# How mail programs introduce what they quote.
_ATTRIBUTION = re.compile(
    r"^\s*(?:On\b.+\bwrote|Am\b.+\bschrieb\b.*|Le\b.+\ba écrit|El\b.+\bescribió|Il\b.+\bha scritto"
    r"|Op\b.+\bschreef\b.*|W dniu\b.+\b(?:pisze|napisał\(?a?\)?)\b.*|Em\b.+\bescreveu"
    r"|Den\b.+\bskrev\b.*|.+<\S+@\S+>\s*(?:wrote|schrieb|пишет|napsal\(a\)))\s*:\s*$",
    re.IGNORECASE,
)
_ORIGINAL = re.compile(
    r"^\s*-{2,}\s*(?:Original Message|Ursprüngliche Nachricht|Message d'origine|Mensaje original"
    r"|Messaggio originale|Forwarded message)\s*-{2,}\s*$",
    re.IGNORECASE,
)
_OUTLOOK_FROM = re.compile(r"^\s*\*?(?:From|Von|De|Da|Van)\s*:\*?\s*\S", re.IGNORECASE)
_OUTLOOK_SENT = re.compile(
    r"^\s*\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Verzonden)\s*:\*?\s*\S",
    re.IGNORECASE,
)
_DEVICE = re.compile(r"^\s*(?:Sent from my|Von meinem|Envoyé de mon|Get Outlook for)\b.{0,60}$")
_LONGEST_ATTRIBUTION = 3
_LONGEST_LINE = 400
_LONGEST_SIGNATURE = 15


@dataclass(frozen=True, slots=True)
class Written:
    """The person's own words, and what was left out of the mail."""

    text: str
    left_out: str = ""


def own_words(text: str) -> Written:
    """The words of whoever wrote, without signature and without what is quoted around them.

    Quotes that are answered line by line stay: without them the answers say nothing. A mail
    that would be empty stays as it is.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")
    kept = _without_original(lines)
    kept = _without_quote_below(kept)
    kept = _without_signature(kept)
    kept = _without_quote_below(kept)
    kept = _without_quote_above(kept)
    words = "\n".join(kept).strip("\n").rstrip()
    if not words.strip():
        return Written("\n".join(lines).rstrip())
    return Written(words, _difference(lines, kept))


def _without_original(lines: list[str]) -> list[str]:
    """Cut at the header of a mail that stands below, as Outlook repeats it."""
    for index, line in enumerate(lines):
        heads = _OUTLOOK_FROM.match(line) and any(
            _OUTLOOK_SENT.match(other) for other in lines[index + 1 : index + 4]
        )
        if index and (_ORIGINAL.match(line) or heads):
            end = index
            while end and (not lines[end - 1].strip() or set(lines[end - 1].strip()) <= {"_"}):
                end -= 1
            return lines[:end]
    return lines


def _without_quote_below(lines: list[str]) -> list[str]:
    end = _end_of_words(lines, len(lines))
    start = end
    while start and (_is_quoted(lines[start - 1]) or not lines[start - 1].strip()):
        start -= 1
    if not any(_is_quoted(line) for line in lines[start:end]):
        return lines[:end]
    length = _attribution_before(lines, start)
    return lines[: _end_of_words(lines, start - length)]


def _without_quote_above(lines: list[str]) -> list[str]:
    """Who answers below repeats the mail first; one block with its introduction goes."""
    first = next((index for index, line in enumerate(lines) if _is_quoted(line)), None)
    if first is None or not _attribution_before(lines, _end_of_words(lines, first)):
        return lines
    if _end_of_words(lines, first) > _attribution_before(lines, _end_of_words(lines, first)):
        return lines
    end = first
    while end < len(lines) and (_is_quoted(lines[end]) or not lines[end].strip()):
        end += 1
    return lines if any(_is_quoted(line) for line in lines[end:]) else lines[end:]


def _without_signature(lines: list[str]) -> list[str]:
    for index, line in enumerate(lines):
        is_mark = line == "-- " or (line == "--" and len(lines) - index <= _LONGEST_SIGNATURE)
        if is_mark and index:
            return lines[:index]
    last = _end_of_words(lines, len(lines))
    if last > 1 and _DEVICE.match(lines[last - 1]):
        return lines[: last - 1]
    return lines


def _attribution_before(lines: list[str], end: int) -> int:
    """How many lines before `end` introduce a quote; programs wrap them."""
    for length in range(1, min(_LONGEST_ATTRIBUTION, end) + 1):
        joined = " ".join(lines[end - length : end])
        if len(joined) <= _LONGEST_LINE and _ATTRIBUTION.match(joined):
            return length
    return 0


def _end_of_words(lines: list[str], end: int) -> int:
    while end and not lines[end - 1].strip():
        end -= 1
    return end


def _is_quoted(line: str) -> bool:
    return line.startswith(">")


def _difference(lines: list[str], kept: list[str]) -> str:
    """What is in the mail and not in the words: they are one run of its lines."""
    if len(kept) == len(lines):
        return ""
    for start in range(len(lines) - len(kept) + 1):
        if lines[start : start + len(kept)] == kept:
            return "\n".join(lines[:start] + lines[start + len(kept) :]).strip("\n")
    return "\n".join(lines)
