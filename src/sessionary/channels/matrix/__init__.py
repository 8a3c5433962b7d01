"""Matrix: an account on a homeserver, in rooms without encryption."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from sessionary.channels.base import read_options
from sessionary.channels.matrix.adapter import MatrixAdapter
from sessionary.channels.matrix.client import MatrixClient
from sessionary.channels.matrix.inbound import MatrixOptions
from sessionary.config.table import Table
from sessionary.errors import BadInput

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def build(table: Table, environ: Mapping[str, str]) -> MatrixAdapter:
    """Return the adapter that `[channels.matrix]` describes."""
    homeserver = (table.text("homeserver") or "").rstrip("/")
    address = urlsplit(homeserver)
    if address.scheme not in ("https", "http") or not address.hostname:
        raise BadInput("[channels.matrix]: set homeserver, for instance https://matrix.example.org")
    if address.scheme == "http" and address.hostname not in _LOOPBACK:
        raise BadInput(f"[channels.matrix]: use https for {address.hostname}: the token is secret.")
    default = MatrixOptions()
    options = read_options(
        table,
        default,
        invites_from=frozenset(table.texts("invites_from", ())),
        largest_file=table.whole("largest_file_bytes") or default.largest_file,
    )
    client = MatrixClient(homeserver, table.required_secret("token", environ))
    return MatrixAdapter(client, options)
