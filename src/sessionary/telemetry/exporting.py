"""Where our spans and metrics go: an exporter of OTLP over HTTP. Loaded only when it is on."""

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from sessionary.telemetry.watching import Watch

SERVICE = "sessionary"


class Export:
    """Providers of our own: the global ones belong to whoever embeds us."""

    def __init__(self, *, endpoint: str | None, content: bool, version: str) -> None:
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over these.
        resource = Resource.create({"service.name": SERVICE, "service.version": version})
        named = Resource.create({})
        if not str(named.attributes.get("service.name", "")).startswith("unknown_service"):
            resource = resource.merge(named)
        base = None if endpoint is None else endpoint.rstrip("/")
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(endpoint=base and f"{base}/v1/traces"))
        )
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(endpoint=base and f"{base}/v1/metrics")
        )
        self._metrics = MeterProvider(resource=resource, metric_readers=[reader])
        self.watch = Watch(
            self._traces.get_tracer(SERVICE, version),
            self._metrics.get_meter(SERVICE, version),
            content=content,
        )

    def close(self) -> None:
        """Send what waits, then let go."""
        self._traces.shutdown()
        self._metrics.shutdown()
