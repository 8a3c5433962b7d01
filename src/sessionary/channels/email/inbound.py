"""Read messages from mails."""

import email
import email.errors
import email.header
import email.utils
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message as Parsed

from sessionary.channels.email.mail_text import is_quoted, own_words, text_of_html
from sessionary.channels.files import MEGABYTE, attachment, not_received_too_large
from sessionary.model.message import FORWARDED, QUOTE, REPLIES_TO, Message, Part, Role, Text
from sessionary.model.source import ChatType, Source
from sessionary.model.terminal import one_line

PLATFORM = "email"
DEFAULT_LARGEST_FILE = 10 * MEGABYTE
DEFAULT_LARGEST_MAIL = 25 * MEGABYTE
# Most servers accept 25 MB, and the encoding of a file adds a third.
DEFAULT_LARGEST_SENT = 18 * MEGABYTE
MAX_FILES = 20
MAX_TEXT = 200_000
_MAX_ID = 250
_MAX_FILE_NAME = 100
_MAX_SUBJECT = 200
_MAX_REFERENCES = 50

_RESENT = ("Resent-From", "Resent-Sender", "Resent-Date")
_FORWARD = re.compile(r"\s*(?:fwd?|wg|tr)\s*:", re.IGNORECASE)
_ID = re.compile(r"<[^<>\s]+>")
_UNREADABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RecursionError,
    email.errors.MessageError,
)
_BULK = frozenset({"bulk", "junk", "list", "auto_reply"})
_AUTOMATIC_SENDERS = (
    "mailer-daemon@",
    "postmaster@",
    "noreply@",
    "no-reply@",
    "donotreply@",
    "bounces@",
)


@dataclass(frozen=True, slots=True)
class MailRules:
    """Which senders are trusted, and how large a file may be."""

    address: str
    authserv_id: str | None = None
    largest_file: int = DEFAULT_LARGEST_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """The parts of a person's mail."""

    message_id: str
    sender: str
    sender_name: str | None
    subject: str
    references: tuple[str, ...]
    # The mail that this one answers.
    answers: str | None = None
    words: str
    left_out: str
    files: tuple["MailFile", ...]
    # Whether the sender has typed the words here, and to us: other words answer no question.
    is_typed: bool = True
    is_forwarded: bool = False

    @property
    def root(self) -> str:
        """The first mail of the thread that this one belongs to."""
        return self.references[0] if self.references else self.message_id


@dataclass(frozen=True, slots=True)
class MailFile:
    """A file in a mail, or the text that replaces it."""

    name: str
    media_type: str
    data: bytes
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class IgnoredMail:
    """A mail that is not answered, and why."""

    reason: str


def read(raw: bytes, rules: MailRules, *, cut_from: int | None = None) -> Mail | IgnoredMail:
    """Parse a mail. `cut_from`: its whole size, if only its beginning was fetched.

    A mail that the library cannot parse is ignored, so that it does not hold up the others.
    """
    try:
        return _read(raw, rules, cut_from)
    except _UNREADABLE as error:
        return IgnoredMail(
            f"it cannot be read: {type(error).__name__}: {one_line(str(error), 100)}"
        )


def _read(raw: bytes, rules: MailRules, cut_from: int | None) -> Mail | IgnoredMail:
    parsed = email.message_from_bytes(raw)
    sender_name, sender = _sender(parsed)
    reason = _why_ignored(parsed, sender, rules)
    if reason is not None:
        return IgnoredMail(reason)
    plain, files = _contents(parsed, rules)
    written = own_words(plain)
    if cut_from is not None:
        size = f"{cut_from / MEGABYTE:.1f} MB"
        files = (MailFile("", "", b"", f"[this mail was cut: {size} is too large]"),)
    subject = _header(parsed, "Subject", _MAX_SUBJECT)
    has_words = bool(written.text.strip() or files)
    return Mail(
        message_id=_id_of(parsed, raw),
        sender=sender,
        sender_name=sender_name,
        subject=subject,
        references=_references(parsed),
        answers=_answered(parsed),
        words=written.text if has_words else subject,
        left_out=written.left_out,
        files=files,
        is_typed=has_words and not written.is_quote,
        is_forwarded=_is_forwarded(parsed, subject, rules),
    )


def source_of(mail: Mail) -> Source:
    """Return where a mail came from: its sender is the chat."""
    return Source(
        PLATFORM,
        mail.sender,
        chat_type=ChatType.DM,
        user_id=mail.sender,
        user_name=mail.sender_name,
        thread_id=mail.root,
        chat_topic=bare_subject(mail.subject) or None,
        platform_message_id=mail.message_id,
    )


def message_of(mail: Mail) -> tuple[Message, tuple[bytes, ...]]:
    """Return the message and the bytes of its files. The quoted text that was left out is kept in `extra`."""
    parts: list[Part] = list(_texts_of(mail)) if mail.words or not mail.files else []
    parts.extend(
        Text(file.refused) if file.refused else attachment(file.data, file.media_type, file.name)
        for file in mail.files
    )
    extra = {"subject": mail.subject} if mail.subject else {}
    if mail.left_out:
        extra["left_out"] = mail.left_out[:MAX_TEXT]
    marks: dict[str, bool | str] = {FORWARDED: True} if mail.is_forwarded else {}
    if mail.answers is not None:
        marks[REPLIES_TO] = mail.answers
    message = Message(
        Role.USER,
        tuple(parts),
        platform_message_id=mail.message_id,
        extra={"email": extra, **marks},
    )
    return message, tuple(file.data for file in mail.files if not file.refused)


def _texts_of(mail: Mail) -> Iterator[Text]:
    """Yield the words of a mail; quotes between them are parts of their own."""
    if not mail.is_typed:
        yield Text(mail.words, extra={QUOTE: True})
        return
    blocks: list[tuple[bool, list[str]]] = []
    for line in mail.words.split("\n"):
        if blocks and (not line.strip() or blocks[-1][0] == is_quoted(line)):
            blocks[-1][1].append(line)
        else:
            blocks.append((is_quoted(line), [line]))
    for is_quote, lines in blocks:
        yield Text("\n".join(lines), extra={QUOTE: True} if is_quote else {})


def bare_subject(subject: str) -> str:
    """Return the subject without the prefixes of replies and forwards."""
    return re.sub(
        r"^(?:\s*(?:re|aw|sv|antw|fwd?|wg|tr)\s*(?:\[\d+\])?\s*:)+\s*", "", subject, flags=re.I
    )


def _why_ignored(parsed: Parsed, sender: str, rules: MailRules) -> str | None:
    """Return why a mail is not answered: two programs that answer each other never stop."""
    if "@" not in sender:
        return "it has no sender"
    if sender == rules.address or _header(parsed, "X-Loop").lower() == rules.address:
        return "it is our own"
    if parsed.get_content_type() == "multipart/report" or sender.startswith(_AUTOMATIC_SENDERS):
        return "a program wrote it: a bounce or a notification"
    if _header(parsed, "Return-Path").strip() == "<>":
        return "it is a bounce"
    automatic = _header(parsed, "Auto-Submitted").split(";")[0].strip().lower()
    if automatic not in ("", "no"):
        return f"it is automatic (Auto-Submitted: {one_line(automatic, 40)})"
    if any(parsed.get(name) for name in ("X-Autoreply", "X-Autorespond")):
        return "it is an automatic reply"
    if _header(parsed, "Precedence").strip().lower() in _BULK or parsed.get("List-Id"):
        return "it comes from a list"
    if rules.authserv_id is not None and not _is_authentic(parsed, sender, rules.authserv_id):
        return f"{rules.authserv_id} does not vouch for its sender"
    return None


def _is_forwarded(parsed: Parsed, subject: str, rules: MailRules) -> bool:
    """Return whether somebody passed a mail on to us: it says so, or it is addressed to others only."""
    if any(parsed.get(name) for name in _RESENT) or _FORWARD.match(subject):
        return True
    named = [str(each) for name in ("To", "Cc") for each in parsed.get_all(name, [])]
    return rules.address not in {each.lower() for _, each in email.utils.getaddresses(named)}


def _is_authentic(parsed: Parsed, sender: str, authserv_id: str) -> bool:
    """Return whether our own mail server has verified the sender.

    Only the topmost header counts: a server adds its own above those that came with the mail.
    """
    top = next(iter(parsed.get_all("Authentication-Results", [])), "")
    name, _, results = " ".join(str(top).split()).partition(";")
    if name.split(" ")[0].lower() != authserv_id.lower():
        return False
    domain = sender.rpartition("@")[2]
    checks = [check.strip().lower() for check in results.split(";")]
    signed = (
        rf"^dkim=pass\b.*\bheader\.(?:d={re.escape(domain)}|i=@?\S*@?{re.escape(domain)})(?:\s|$)"
    )
    return any(check.startswith("dmarc=pass") or re.match(signed, check) for check in checks)


def _sender(parsed: Parsed) -> tuple[str | None, str]:
    name, address = email.utils.parseaddr(str(parsed.get("From", "")))
    return one_line(_decoded(name), 100) or None, address.strip().lower()


def _id_of(parsed: Parsed, raw: bytes) -> str:
    """Return the mail's own id; for a mail without one, an id made from its content."""
    found = _ID.search(str(parsed.get("Message-ID", "")))
    return _short(found[0]) if found else f"<{hashlib.sha256(raw).hexdigest()[:32]}@no-id>"


def _answered(parsed: Parsed) -> str | None:
    """Return the id of the mail that this one answers."""
    found = _ID.search(str(parsed.get("In-Reply-To", "")))
    return None if found is None else _short(found[0])


def _references(parsed: Parsed) -> tuple[str, ...]:
    """Return the ids of the thread before this mail, its root first."""
    answered = _answered(parsed)
    before = [_short(each) for each in _ID.findall(str(parsed.get("References", "")))]
    ids = [*before, *([] if answered is None else [answered])]
    unique = list(dict.fromkeys(ids))
    return tuple(unique[:1] + unique[1:][-_MAX_REFERENCES:])


def _short(id: str) -> str:
    """Return an id that can be stored."""
    if len(id) <= _MAX_ID and id.isascii() and id.isprintable():
        return id
    named = id.encode("utf-8", "surrogateescape")
    return f"<{hashlib.sha256(named).hexdigest()[:32]}@long-id>"


def _header(parsed: Parsed, name: str, longest: int = 500) -> str:
    return one_line(_decoded(str(parsed.get(name, ""))), longest)


def _decoded(text: str) -> str:
    try:
        pieces = email.header.decode_header(text)
        return "".join(
            piece if isinstance(piece, str) else _text(piece, charset) for piece, charset in pieces
        )
    except (email.errors.HeaderParseError, ValueError):
        return text


def _contents(parsed: Parsed, rules: MailRules) -> tuple[str, tuple[MailFile, ...]]:
    """Return the text of a mail, and its files."""
    plain: list[str] = []
    pages: list[str] = []
    files: list[MailFile] = []
    for leaf in _leaves(parsed):
        kind = leaf.get_content_type()
        is_text = kind in ("text/plain", "text/html") and not _is_file(leaf)
        if is_text:
            (plain if kind == "text/plain" else pages).append(_text_in(leaf))
        else:
            files.append(_file_in(leaf, rules.largest_file, len(files)))
    words = "\n\n".join(plain) if any(text.strip() for text in plain) else ""
    words = words or "\n\n".join(text_of_html(page) for page in pages)
    return words[:MAX_TEXT], _not_too_many(files)


def _leaves(parsed: Parsed) -> Iterator[Parsed]:
    """Yield the parts that are not containers; a mail within a mail is one file."""
    if parsed.get_content_maintype() != "multipart":
        yield parsed
        return
    inside = parsed.get_payload()
    for part in inside if isinstance(inside, list) else ():
        if isinstance(part, Parsed):
            yield from _leaves(part)


def _is_file(part: Parsed) -> bool:
    return part.get_content_disposition() == "attachment" or part.get_filename() is not None


def _text_in(part: Parsed) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    return _text(data, part.get_content_charset()).replace("\r\n", "\n")


def _text(data: bytes, charset: str | None) -> str:
    try:
        return data.decode(charset or "utf-8", "replace").replace("\x00", "\ufffd")
    except (LookupError, ValueError):  # no charset of this name, or one that cannot replace
        return data.decode("utf-8", "replace").replace("\x00", "\ufffd")


def _file_in(part: Parsed, largest: int, index: int) -> MailFile:
    if part.get_content_maintype() == "message":
        data = b"".join(_bytes_of(each) for each in _list(part.get_payload()))
    else:
        payload = part.get_payload(decode=True)
        data = payload if isinstance(payload, bytes) else b""
    given = _decoded(str(part.get_filename() or ""))
    name = one_line(given.replace("\\", "/").rpartition("/")[2], _MAX_FILE_NAME)
    name = name or f"file-{index + 1}"
    if len(data) > largest:
        return MailFile(name, "", b"", not_received_too_large(name, largest, len(data)).text)
    return MailFile(name, one_line(part.get_content_type(), 100), data)


def _bytes_of(mail: Parsed) -> bytes:
    """Return a mail within a mail as bytes; the library cannot always restore its original form."""
    try:
        return mail.as_bytes()
    except ValueError:
        return mail.as_string().encode("utf-8", "surrogateescape")


def _list(payload: object) -> list[Parsed]:
    return (
        [each for each in payload if isinstance(each, Parsed)] if isinstance(payload, list) else []
    )


def _not_too_many(files: Sequence[MailFile]) -> tuple[MailFile, ...]:
    if len(files) <= MAX_FILES:
        return tuple(files)
    note = f"[{len(files) - MAX_FILES} more files left out: at most {MAX_FILES} are taken]"
    return (*files[:MAX_FILES], MailFile("", "", b"", note))
