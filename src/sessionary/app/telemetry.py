"""OpenTelemetry for an open house: loaded and running only when someone wants it."""

import importlib
import logging
from typing import TYPE_CHECKING

import sessionary
from sessionary import config
from sessionary.client.client import Sessionary
from sessionary.config import telemetry as settings_of
from sessionary.errors import BadInput
from sessionary.telemetry.taking import SpanIntake

if TYPE_CHECKING:
    from sessionary.telemetry.exporting import Export

log = logging.getLogger("sessionary.telemetry")
_NEEDED = "OpenTelemetry needs an extra: install sessionary[otel]"


def open_export(client: Sessionary) -> "Export | None":
    """What sends our spans and metrics, or None when they are not wanted."""
    settings = settings_of.read(client.config, config.environment())
    if not settings.export:
        return None
    try:
        exporting = importlib.import_module("sessionary.telemetry.exporting")
    except ModuleNotFoundError as error:
        if settings.is_asked_for:
            raise BadInput(f"{_NEEDED}, or set export = false in [telemetry].") from error
        log.warning("%s; the variables OTEL_* name a collector that gets nothing.", _NEEDED)
        return None
    made: Export = exporting.Export(
        endpoint=settings.endpoint, content=settings.content, version=sessionary.__version__
    )
    return made


def intake_of(client: Sessionary) -> SpanIntake | None:
    """What takes in other programs' spans and log records, unless that is turned off."""
    settings = settings_of.read(client.config, config.environment())
    if not settings.receive:
        return None
    return SpanIntake(client.store, client.machine.clock, client.machine.ids)
