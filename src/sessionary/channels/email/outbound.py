"""From a delivery to the mail that is sent. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP

from sessionary.channels.email.inbound import bare_subject
from sessionary.channels.enclosures import Enclosure
from sessionary.engine.ports import Capabilities
from sessionary.errors import Unreachable
from sessionary.model import codec
from sessionary.model.message import text_of
from sessionary.model.terminal import one_line
from sessionary.model.turn import Delivery

NOTHING = "(An empty message.)"
DEFAULT_SUBJECT = "A message from your agent"
# Most servers take 25 MB, and a file grows by a third on the way.
DEFAULT_LARGEST_SENT = 18 * 1024 * 1024
_MOST_REFERENCES = 20
# Lines as long as SMTP allows: a long id that had to be folded would be encoded, and lost.
_POLICY = SMTP.clone(max_line_length=998, cte_type="7bit")

CAPABILITIES = Capabilities(
    longest_text=200_000,
    notes=(
        "You answer by e-mail, as plain text: no tables, no HTML, links written out.",
        "People read it later and cannot see you typing: answer completely, do not ask back.",
        "You see the mails of this thread only; you cannot search the mailbox or write to others.",
    ),
)


@dataclass(frozen=True, slots=True)
class Thread:
    """What an answer has to name so that mail programs put it below what it answers."""

    subject: str = ""
    references: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes."""

    address: str
    name: str | None = None


def compose(
    delivery: Delivery, me: Identity, thread: Thread, files: Sequence[Enclosure | str] = ()
) -> EmailMessage:
    """The mail of a delivery. It has the same id in every try, so that a copy is known as one."""
    mail = EmailMessage(policy=_POLICY)
    mail["From"] = _from(me)
    mail["To"] = _address(delivery.channel.chat_id, str(delivery.channel))
    mail["Subject"] = _subject(thread)
    mail["Date"] = delivery.created_at
    mail["Message-ID"] = message_id(delivery.id, me.address)
    if delivery.channel.thread_id is not None:
        chain = _chain(delivery.channel.thread_id, thread.references)
        mail["In-Reply-To"] = chain[-1]
        mail["References"] = " ".join(chain)
        mail["Auto-Submitted"] = "auto-replied"
    else:
        mail["Auto-Submitted"] = "auto-generated"
    # What other robots look at, and what we look at when one sends our own mail back.
    mail["X-Auto-Response-Suppress"] = "All"
    mail["X-Loop"] = me.address
    # What stands in the place of a file is said below the words.
    said = [text_of(delivery.parts), *(each for each in files if isinstance(each, str))]
    mail.set_content(_words("\n\n".join(each for each in said if each), has_files=bool(files)))
    for file in files:
        if isinstance(file, Enclosure):
            kind, _, form = file.media_type.partition("/")
            mail.add_attachment(file.data, maintype=kind, subtype=form, filename=file.name)
    return mail


def message_id(delivery_id: str, address: str) -> str:
    """The id of the mail of a delivery."""
    return f"<{delivery_id}@{address.rpartition('@')[2]}>"


def _words(text: str, *, has_files: bool) -> str:
    sayable = "".join(char for char in codec.storable_text(text) if char >= " " or char in "\n\t")
    return sayable if sayable.strip() or has_files else NOTHING


def _subject(thread: Thread) -> str:
    subject = one_line(bare_subject(thread.subject), 200)
    if thread.references or subject:
        return f"Re: {subject}" if subject else "Re:"
    return DEFAULT_SUBJECT


def _chain(root: str, references: Sequence[str]) -> list[str]:
    ids = list(dict.fromkeys([root, *references]))
    return ids[:1] + ids[1:][-_MOST_REFERENCES:]


def _from(me: Identity) -> Address:
    return Address(display_name=me.name or "", addr_spec=me.address)


def _address(text: str, channel: str) -> Address:
    try:
        return Address(addr_spec=text)
    except (MessageError, ValueError, IndexError) as error:
        raise Unreachable(f"{one_line(text, 80)!r} is not an e-mail address.", channel) from error
