"""Matrix: an account on a homeserver, in rooms without encryption."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from sessionary.channels.enclosures import largest_sent
from sessionary.channels.matrix.adapter import MatrixAdapter, who
from sessionary.channels.matrix.client import Client
from sessionary.channels.matrix.inbound import DEFAULT_LARGEST_FILE, DEFAULT_LARGEST_SENT, Rules
from sessionary.config.table import Table
from sessionary.engine.ports import Adapter
from sessionary.errors import BadInput

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def build(table: Table, environ: Mapping[str, str]) -> Adapter:
    """The account that the settings describe."""
    homeserver = (table.text("homeserver") or "").rstrip("/")
    address = urlsplit(homeserver)
    if address.scheme not in ("https", "http") or not address.hostname:
        raise BadInput("[channels.matrix]: set homeserver, for instance https://matrix.example.org")
    if address.scheme == "http" and address.hostname not in _LOOPBACK:
        raise BadInput(f"[channels.matrix]: use https for {address.hostname}: the token is secret.")
    rules = Rules(
        always=table.word("answer", "mentioned", ("mentioned", "always")) == "always",
        observe=table.flag("observe", default=False),
        invites_from=frozenset(table.texts("invites_from", ())),
        largest_file=table.whole("largest_file_bytes") or DEFAULT_LARGEST_FILE,
        largest_sent=largest_sent(table, DEFAULT_LARGEST_SENT),
    )
    return MatrixAdapter(Client(homeserver, table.required_secret("token", environ)), rules)


async def check(adapter: Adapter) -> str:
    """Connect, and say who the bot is."""
    assert isinstance(adapter, MatrixAdapter)
    return await who(adapter)
