"""Settings of the server: the tables `[web]`, `[telemetry]` and `[imports]`."""

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


def read_web(config: Config, environ: Mapping[str, str]) -> WebTable:
    """Read `[web]`."""
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
    """Return the directory for backups: an absolute path, because a server may be started anywhere."""
    given = table.text("backup_folder")
    if given is not None and not Path(given).is_absolute():
        raise BadInput(f"[web] backup_folder = {given!r}: an absolute path is needed.")
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
            f"[web] trusted_proxies: {text!r} is not an address or a network; "
            "write one like 127.0.0.1 or 10.0.0.0/8."
        ) from error


# OpenTelemetry's own variables: if one names a collector, spans and metrics are sent to it.
_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
_DISABLED = "OTEL_SDK_DISABLED"


@dataclass(frozen=True, slots=True)
class TelemetryTable:
    """The table `[telemetry]`."""

    export: bool = False
    endpoint: str | None = None
    content: bool = False
    receive: bool = True
    # Whether `export` is set, or only the environment names a collector.
    is_asked_for: bool = False


def read_telemetry(config: Config, environ: Mapping[str, str]) -> TelemetryTable:
    """Read `[telemetry]` and OpenTelemetry's variables."""
    table = Table(config.file, str(config.home / FILE)).table("telemetry")
    wanted = table.flag("export", default=False)
    is_written = "export" in table.values
    named = any(environ.get(name) for name in _ENDPOINTS)
    is_off = environ.get(_DISABLED, "").strip().lower() == "true"
    settings = TelemetryTable(
        export=(wanted if is_written else named) and not is_off,
        endpoint=table.text("endpoint"),
        content=table.flag("content", default=False),
        receive=table.flag("receive", default=True),
        is_asked_for=wanted,
    )
    table.refuse_unknown()
    return settings


@dataclass(frozen=True, slots=True)
class ImportTable:
    """The table `[imports]`."""

    # The tools whose records `sessionary serve` reads as they grow.
    watch: tuple[str, ...] = ()


def read_imports(config: Config) -> ImportTable:
    """Read `[imports]`."""
    table = Table(config.file, str(config.home / FILE)).table("imports")
    settings = ImportTable(watch=table.texts("watch", ()))
    table.refuse_unknown()
    return settings
