"""What the configuration says of OpenTelemetry: what we send, and what we take in."""

from collections.abc import Mapping
from dataclasses import dataclass

from sessionary.config import FILE, Config
from sessionary.config.table import Table

# A program that is told where a collector is sends there; that is how it is everywhere.
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
    # Whether someone wrote `export` down, or only the environment names a collector.
    is_asked_for: bool = False


def read(config: Config, environ: Mapping[str, str]) -> TelemetryTable:
    """Read the table that concerns OpenTelemetry, and what the usual variables say."""
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
