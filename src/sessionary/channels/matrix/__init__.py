"""Matrix: an account on a homeserver, in rooms without encryption."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

from sessionary.channels.matrix.inbound import MatrixOptions
from sessionary.channels.registry import ChannelKind
from sessionary.config.secret import Secret
from sessionary.config.setting import Setting, address
from sessionary.engine.ports import Adapter

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixSettings(MatrixOptions):
    """The table `[channels.matrix]`."""

    homeserver: Annotated[
        str,
        address("https", "http"),
        Setting("its address; http only on loopback", example="https://matrix.example.org"),
    ]
    token: Annotated[Secret, Setting("the account's access token", example="MATRIX_TOKEN")]

    def check(self) -> None:
        """Refuse to send the token in the clear."""
        server = urlsplit(self.homeserver)
        if server.scheme == "http" and server.hostname not in _LOOPBACK:
            raise ValueError(f"use https for {server.hostname}: the token is secret.")
        if not server.hostname:
            raise ValueError("homeserver has no host, such as https://matrix.example.org")


def create(settings: MatrixSettings) -> Adapter:
    """Return the adapter that `[channels.matrix]` describes."""
    # Loads matrix-nio, which may be missing.
    from sessionary.channels.matrix.adapter import MatrixAdapter

    return MatrixAdapter(settings.homeserver, settings.token, settings)


CHANNEL = ChannelKind(
    name="matrix",
    title="Matrix",
    settings=MatrixSettings,
    create=create,
    extra="sessionary[matrix]",
    documentation="docs/channels/matrix.md",
)
