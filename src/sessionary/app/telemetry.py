"""OpenTelemetry for a running server: loaded only if it is configured."""

import logging
from typing import TYPE_CHECKING

import sessionary
from sessionary import config
from sessionary.client.client import Sessionary
from sessionary.config import telemetry as telemetry_settings
from sessionary.errors import BadInput
from sessionary.telemetry.ingest import TelemetryIngest

if TYPE_CHECKING:
    from sessionary.telemetry.instrument import TelemetryExporter

log = logging.getLogger(__name__)
_NEEDED = "OpenTelemetry needs an extra: install sessionary[otel]"


def open_exporter(client: Sessionary) -> "TelemetryExporter | None":
    """Start sending our spans and metrics; None if that is not configured."""
    settings = telemetry_settings.read(client.config, config.environment())
    if not settings.export:
        return None
    try:
        # The SDK belongs to an extra, and would add 0.4 s of CPU to every start.
        from sessionary.telemetry.instrument import TelemetryExporter
    except ModuleNotFoundError as error:
        if settings.is_asked_for:
            raise BadInput(f"{_NEEDED}, or set export = false in [telemetry].") from error
        log.warning("%s; the variables OTEL_* name a collector that gets nothing.", _NEEDED)
        return None
    return TelemetryExporter(
        endpoint=settings.endpoint, content=settings.content, version=sessionary.__version__
    )


def open_ingest(client: Sessionary) -> TelemetryIngest | None:
    """What receives other programs' spans and log records; None if that is turned off."""
    settings = telemetry_settings.read(client.config, config.environment())
    if not settings.receive:
        return None
    return TelemetryIngest(client.store, client.machine.clock, client.machine.ids)
