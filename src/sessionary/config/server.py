"""Settings of the server: the tables `[web]`, `[push]`, `[telemetry]` and `[imports]`."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from sessionary.config import Config
from sessionary.config.reader import Place, read
from sessionary.config.secret import Secret
from sessionary.config.setting import PLAIN, AbsolutePath, Setting, ValueKind
from sessionary.errors import BadInput

T = TypeVar("T")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NETWORK = ValueKind(
    "an address or a network such as 127.0.0.1 or 10.0.0.0/8",
    lambda text: ipaddress.ip_network(str.strip(text)),
)
_HASHED = re.compile(r"scrypt\$[A-Za-z0-9+/]{22}==\$[A-Za-z0-9+/]{43}=")
_HIGHEST_PORT = 65_535
_GIGABYTE = 1024**3
_DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The table `[web.limits]`: how much one caller may ask for, and how slow it may be."""

    body_bytes: Annotated[
        int, Setting("the largest body of a request", ge=65_536, le=_GIGABYTE)
    ] = 36 * 1024 * 1024
    upload_bytes: Annotated[
        int, Setting("the largest file that can be uploaded", gt=0, le=_GIGABYTE)
    ] = 25 * 1024 * 1024
    small_body_bytes: Annotated[
        int, Setting("the largest body of a login", ge=1024, le=1024 * 1024)
    ] = 64 * 1024
    body_seconds: Annotated[float, Setting("how long a body may take to arrive", gt=0, le=_DAY)] = (
        60.0
    )
    depth: Annotated[int, Setting("how deeply JSON may be nested", ge=8, le=500)] = 64
    streams: Annotated[int, Setting("open event streams, of all callers", gt=0, le=100_000)] = 128
    streams_per_caller: Annotated[
        int, Setting("open event streams of one caller", gt=0, le=100_000)
    ] = 16
    stream_stall_seconds: Annotated[
        float, Setting("a stream that accepts nothing for this long is closed", gt=0, le=_DAY)
    ] = 20.0
    keep_alive_seconds: Annotated[
        float, Setting("a stream without events gets a comment this often", gt=0, le=3600)
    ] = 15.0
    check_seconds: Annotated[
        float, Setting("how often a stream looks for what other processes wrote", gt=0, le=3600)
    ] = 1.0
    connections: Annotated[
        int,
        Setting("open connections; fewer if the system allows fewer files", gt=0, le=100_000),
    ] = 512
    connections_per_address: Annotated[
        int, Setting("open connections of one address", gt=0, le=100_000)
    ] = 128
    request_head_seconds: Annotated[
        float, Setting("how long the head of a request may take to arrive", gt=0, le=_DAY)
    ] = 10.0
    response_stall_seconds: Annotated[
        float, Setting("a caller that accepts nothing for this long is cut off", gt=0, le=_DAY)
    ] = 60.0
    # Each body costs several times its size while it is handled.
    bodies_bytes: Annotated[
        int, Setting("all bodies that are being read or handled", ge=65_536, le=16 * _GIGABYTE)
    ] = 48 * 1024 * 1024
    bodies_wait_seconds: Annotated[
        float, Setting("how long a body waits for others to finish", gt=0, le=_DAY)
    ] = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSettings:
    """The table `[web]`, and the zone of times."""

    allowed_hosts: Annotated[
        frozenset[str], Setting("host names of the server, besides loopback")
    ] = frozenset()
    trusted_proxies: Annotated[
        tuple[Annotated[Network, _NETWORK], ...],
        Setting('whose X-Forwarded-Host, -Proto and -For are trusted: ["127.0.0.1", "10.0.0.0/8"]'),
    ] = ()
    password_hash: Annotated[
        Secret | None,
        PLAIN,
        Setting(
            'or password_hash = "…", of: sessionary password hash',
            example="/run/secrets/sessionary",
        ),
    ] = None
    webhook_port: Annotated[
        int | None,
        Setting("a separate port that serves only webhooks", gt=0, le=_HIGHEST_PORT, example=8742),
    ] = None
    webhook_host: Annotated[str, Setting("where that port listens")] = "127.0.0.1"
    backup_folder: Annotated[
        AbsolutePath | None,
        Setting(
            "for backups made in the workbench; default: `backups` in the home directory",
            example="/mnt/safe",
        ),
    ] = None
    keep_backups: Annotated[
        int | None, Setting("delete all but the newest; default: keep all", gt=0, example=14)
    ] = None
    limits: Annotated[
        Limits, Setting("how much one caller may ask for, and how slow it may be")
    ] = field(default_factory=Limits)
    # The `zone` of the file, outside this table.
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))

    @property
    def webhook_address(self) -> tuple[str, int] | None:
        """The separate address for webhooks."""
        return None if self.webhook_port is None else (self.webhook_host, self.webhook_port)


def read_web(config: Config, environ: Mapping[str, str]) -> WebSettings:
    """Read `[web]`."""
    settings = read_table(WebSettings, config, "web", environ)
    hashed = settings.password_hash
    if hashed is not None and not _HASHED.fullmatch(hashed.reveal()):
        raise BadInput(
            f"{Place(config.path, 'web')}: password_hash is not a hash that Sessionary made; "
            "make one with: sessionary password hash"
        )
    return replace(settings, zone=config.zone)


def _push_service(text: str) -> str:
    found = urlsplit(text)
    is_local = found.scheme == "http" and found.hostname in ("127.0.0.1", "localhost")
    is_web = found.scheme == "https" or is_local
    if not is_web or text.rstrip("/") != f"{found.scheme}://{found.netloc}" or "@" in text:
        raise ValueError(text)
    return text.rstrip("/")


def _contact(text: str) -> str:
    if not text.startswith(("mailto:", "https://")):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTable:
    """The table `[push]`."""

    contact: Annotated[
        str | None,
        ValueKind("mailto:… or https://…", _contact, short="address"),
        Setting(
            "how push services reach you; default: the address of the workbench",
            example="mailto:you@example.org",
        ),
    ] = None
    services: Annotated[
        tuple[
            Annotated[
                str,
                ValueKind(
                    "the address of a push service such as https://push.example.org", _push_service
                ),
            ],
            ...,
        ],
        Setting(
            "push services besides those of Chrome, Edge, Firefox and Safari: "
            '["https://push.example.org"]'
        ),
    ] = ()


def read_push(config: Config) -> PushTable:
    """Read `[push]`."""
    return read_table(PushTable, config, "push", {})


# OpenTelemetry's own variables: if one names a collector, spans and metrics are sent to it.
_ENDPOINTS = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)
_DISABLED = "OTEL_SDK_DISABLED"


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryTable:
    """The table `[telemetry]`."""

    export: Annotated[
        bool, Setting("true: send spans and metrics of turns, deliveries and the store")
    ] = False
    endpoint: Annotated[
        str | None,
        Setting("a collector; default: the OTEL_* variables", example="http://127.0.0.1:4318"),
    ] = None
    content: Annotated[
        bool, Setting("true: include message content, not only counts and times")
    ] = False
    receive: Annotated[
        bool, Setting("receive other programs' spans at /v1/traces, with a token")
    ] = True
    # Whether `export` is set, or only the environment names a collector.
    is_asked_for: bool = False


def read_telemetry(config: Config, environ: Mapping[str, str]) -> TelemetryTable:
    """Read `[telemetry]` and OpenTelemetry's variables."""
    table = read_table(TelemetryTable, config, "telemetry", environ)
    is_written = "export" in config.file.get("telemetry", {})
    named = any(environ.get(name) for name in _ENDPOINTS)
    is_off = environ.get(_DISABLED, "").strip().lower() == "true"
    return replace(
        table,
        export=(table.export if is_written else named) and not is_off,
        is_asked_for=table.export,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTable:
    """The table `[imports]`."""

    watch: Annotated[
        tuple[str, ...], Setting('sources of `sessionary import`: ["claude-code", "codex"]')
    ] = ()


def read_imports(config: Config) -> ImportTable:
    """Read `[imports]`."""
    return read_table(ImportTable, config, "imports", {})


def read_table(table: type[T], config: Config, name: str, environ: Mapping[str, str]) -> T:
    """Read one table of the file, without looking up its secrets."""
    place, values = Place(config.path), config.file.get(name, {})
    if not isinstance(values, dict):
        raise BadInput(f"{place}: {name} must be a table.")
    return read(table, values, place.below(name), environ=environ)
