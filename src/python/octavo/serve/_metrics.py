"""What a server counts, for Prometheus (GET /metrics) and for the protocol's statistics."""
from typing import Any, Dict, List, Tuple

import prometheus_client as prometheus

_SECONDS = (.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30)


class Metrics:
    """One registry a server, so that several servers can live in one process."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        labels = ("model", "version")
        self.requests = prometheus.Counter("octavo_requests", "Answered inference requests, by outcome: ok, or the HTTP status of the error",
                                           (*labels, "protocol", "outcome"), registry=self.registry)
        self.seconds = prometheus.Histogram("octavo_request_seconds", "From the whole request to its answer", labels, buckets=_SECONDS,
                                            registry=self.registry)
        self.queued = prometheus.Histogram("octavo_queue_seconds", "From the whole request to the start of its run", labels, buckets=_SECONDS,
                                           registry=self.registry)
        self.run = prometheus.Histogram("octavo_run_seconds", "One run of a batch, with joining and splitting", labels, buckets=_SECONDS,
                                        registry=self.registry)
        self.rows = prometheus.Histogram("octavo_batch_rows", "Rows that requests put into one run", labels,
                                         buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), registry=self.registry)
        self.padding = prometheus.Counter("octavo_padding_rows", "Rows that belonged to no request: they filled batches up", labels, registry=self.registry)
        self.waiting = prometheus.Gauge("octavo_waiting_requests", "Requests in the queue now", labels, registry=self.registry)
        self.loads = prometheus.Counter("octavo_loads", "Models loaded, by outcome: ok or failed", ("model", "outcome"), registry=self.registry)
        self.totals: Dict[Tuple[str, str], Dict[str, float]] = {}
        self._children: Dict[Tuple[Any, ...], Any] = {}  # labels() takes longer than counting

    def of(self, model: str, version: str) -> Dict[str, float]:
        """Sums since the start: requests, failures, runs, rows, and seconds of each kind."""
        if (model, version) not in self.totals:
            self.totals[model, version] = {"ok": 0, "failed": 0, "runs": 0, "rows": 0, "seconds": 0.0, "queue": 0.0, "run": 0.0}
        return self.totals[model, version]

    def _child(self, metric: Any, *labels: str) -> Any:
        found = self._children.get((metric, *labels))
        if found is None:
            found = self._children[(metric, *labels)] = metric.labels(*labels)
        return found

    def observe_run(self, model: str, version: str, rows: int, size: int, queued: List[float], seconds: float) -> None:
        key = (model, version)
        rows = max(rows, 1)
        self._child(self.rows, *key).observe(rows)
        self._child(self.padding, *key).inc(max(size - rows, 0))
        self._child(self.run, *key).observe(seconds)
        in_queue = self._child(self.queued, *key)
        for one in queued:
            in_queue.observe(one)
        sums = self.of(*key)
        sums["runs"] += 1
        sums["rows"] += rows
        sums["run"] += seconds
        sums["queue"] += sum(queued)

    def observe_request(self, model: str, version: str, protocol: str, outcome: str, seconds: float) -> None:
        self._child(self.requests, model, version, protocol, outcome).inc()
        if outcome == "ok":
            self._child(self.seconds, model, version).observe(seconds)
        sums = self.of(model, version)
        sums["ok" if outcome == "ok" else "failed"] += 1
        sums["seconds"] += seconds

    def text(self) -> Tuple[bytes, str]:
        """The registry in Prometheus' text format, and its content type."""
        made: Any = prometheus.generate_latest(self.registry)
        return made, prometheus.CONTENT_TYPE_LATEST
