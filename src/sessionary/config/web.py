"""What the configuration says of the web: names, proxies, a password, an address for webhooks."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sessionary.config import FILE, Config
from sessionary.config.secret import Secret
from sessionary.config.table import Table
from sessionary.errors import BadInput

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HASHED = re.compile(r"scrypt\$[A-Za-z0-9+/]{22}==\$[A-Za-z0-9+/]{43}=")
_HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class WebTable:
    """The table `[web]`."""

    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[Network, ...] = ()
    password_hash: Secret | None = None
    webhook_host: str = "127.0.0.1"
    webhook_port: int | None = None
    backup_folder: Path | None = None
    keep_backups: int | None = None


def read(config: Config, environ: Mapping[str, str]) -> WebTable:
    """Read the table that concerns the web."""
    table = Table(config.file, str(config.home / FILE)).table("web")
    port = table.whole("webhook_port")
    if port is not None and port > _HIGHEST_PORT:
        raise BadInput(f"[web] webhook_port = {port}: a port is at most {_HIGHEST_PORT}.")
    settings = WebTable(
        allowed_hosts=table.texts("allowed_hosts", ()),
        trusted_proxies=tuple(map(_network, table.texts("trusted_proxies", ()))),
        password_hash=_password(table, environ),
        webhook_host=table.text("webhook_host") or "127.0.0.1",
        webhook_port=port,
        backup_folder=_folder(table),
        keep_backups=table.whole("keep_backups"),
    )
    table.refuse_unknown()
    return settings


def _folder(table: Table) -> Path | None:
    """Where the workbench puts backups: a whole path, because a server may be started anywhere."""
    given = table.text("backup_folder")
    if given is not None and not Path(given).is_absolute():
        raise BadInput(f"[web] backup_folder = {given!r}: a whole path is wanted.")
    return None if given is None else Path(given)


def _password(table: Table, environ: Mapping[str, str]) -> Secret | None:
    plain, named = table.text("password_hash"), table.secret("password_hash", environ)
    found = named if plain is None else Secret(plain)
    if found is not None and not _HASHED.fullmatch(found.reveal()):
        raise BadInput(
            "[web] password_hash is not a hash that Sessionary made; make one with: "
            "sessionary password hash"
        )
    return found


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise BadInput(
            f"[web] trusted_proxies: {text!r} is no address and no network; "
            "write one like 127.0.0.1 or 10.0.0.0/8."
        ) from error
