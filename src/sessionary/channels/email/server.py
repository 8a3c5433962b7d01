"""Where a mail server is, and how it is spoken to."""

from dataclasses import dataclass

from sessionary.config.table import Table
from sessionary.errors import BadInput

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_SECURITY = ("tls", "starttls", "none")


@dataclass(frozen=True, slots=True)
class Server:
    """An address, and what protects the way there."""

    host: str
    port: int
    security: str = "tls"


def read(table: Table, name: str, *, ports: dict[str, int]) -> Server:
    """The server that `<name>_host`, `<name>_port` and `<name>_security` describe."""
    host = table.text(f"{name}_host")
    security = table.word(f"{name}_security", "tls", _SECURITY)
    port = table.whole(f"{name}_port") or ports[security]
    if host is None:
        raise BadInput(f"[channels.email]: set {name}_host, the address of your mail server.")
    if security == "none" and host not in _LOOPBACK:
        raise BadInput(
            f"[channels.email]: {name}_security = 'none' would send the password in the clear to "
            f"{host}; use 'tls' or 'starttls'."
        )
    return Server(host, port, security)
