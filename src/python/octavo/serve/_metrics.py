"""What a server counts, for Prometheus (GET /metrics) and for the protocol's statistics. Counting belongs to the event loop's thread: plain
sums, of which prometheus_client makes its text when it is asked for (its own counters lock, and took a tenth of a request's time)."""
import bisect
import functools
from typing import Any, Callable, Dict, Iterator, List, Tuple

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

_SECONDS = (.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class _Histogram:
    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def buckets(self) -> List[Tuple[str, float]]:
        total, out = 0, []
        for bound, count in zip((*self.bounds, float("inf")), self.counts):
            total += count
            out.append((floatToGoString(bound), float(total)))
        return out


class _OfVersion:
    """Sums of a model version since the start. `sums`: requests, failures, runs, rows, and seconds of each kind; and what waits now."""

    def __init__(self) -> None:
        self.sums: Dict[str, float] = {"ok": 0, "failed": 0, "runs": 0, "rows": 0, "seconds": 0.0, "queue": 0.0, "run": 0.0, "padding": 0, "waiting": 0}
        self.seconds, self.queued, self.run, self.rows = _Histogram(_SECONDS), _Histogram(_SECONDS), _Histogram(_SECONDS), _Histogram(_ROWS)


class Metrics:
    """One registry a server, so that several servers can live in one process."""

    def __init__(self) -> None:
        self.registry = prometheus.CollectorRegistry()
        self.loads = prometheus.Counter("octavo_loads", "Models loaded, by outcome: ok or failed", ("model", "outcome"), registry=self.registry)
        self._requests: Dict[Tuple[str, str, str, str], int] = {}
        self._versions: Dict[Tuple[str, str], _OfVersion] = {}
        self.registry.register(self)  # type: ignore[arg-type]

    def of(self, model: str, version: str) -> Dict[str, float]:
        return self._of((model, version)).sums

    def _of(self, key: Tuple[str, str]) -> _OfVersion:
        found = self._versions.get(key)
        if found is None:
            found = self._versions[key] = _OfVersion()
        return found

    def waiting(self, model: str, version: str) -> Callable[[int], None]:
        """What is told how many requests wait."""
        return functools.partial(self.of(model, version).__setitem__, "waiting")

    def observe_run(self, model: str, version: str, rows: int, size: int, queued: List[float], seconds: float) -> None:
        one = self._of((model, version))
        rows = max(rows, 1)
        one.rows.observe(rows)
        one.run.observe(seconds)
        for waited in queued:
            one.queued.observe(waited)
        sums = one.sums
        sums["padding"] += max(size - rows, 0)
        sums["runs"] += 1
        sums["rows"] += rows
        sums["run"] += seconds
        sums["queue"] += sum(queued)

    def observe_request(self, model: str, version: str, protocol: str, outcome: str, seconds: float) -> None:
        key = (model, version, protocol, outcome)
        self._requests[key] = self._requests.get(key, 0) + 1
        one = self._of((model, version))
        ok = outcome == "ok"
        if ok:
            one.seconds.observe(seconds)
        one.sums["ok" if ok else "failed"] += 1
        one.sums["seconds"] += seconds

    def collect(self) -> Iterator[Any]:
        """For the registry."""
        requests = CounterMetricFamily("octavo_requests", "Answered inference requests, by outcome: ok, or the HTTP status of the error",
                                       labels=("model", "version", "protocol", "outcome"))
        for labels, count in self._requests.items():
            requests.add_metric(labels, count)
        yield requests
        known = [(key, one) for key, one in self._versions.items() if key != ("", "")]
        for name, text, field in (("octavo_request_seconds", "From the whole request to its answer", "seconds"),
                                  ("octavo_queue_seconds", "From the whole request to the start of its run", "queued"),
                                  ("octavo_run_seconds", "One run of a batch, with joining", "run"),
                                  ("octavo_batch_rows", "Rows that requests put into one run", "rows")):
            family = HistogramMetricFamily(name, text, labels=("model", "version"))
            for key, one in known:
                histogram: _Histogram = getattr(one, field)
                family.add_metric(key, histogram.buckets(), histogram.sum)
            yield family
        padding = CounterMetricFamily("octavo_padding_rows", "Rows that belonged to no request: they filled batches up", labels=("model", "version"))
        waiting = GaugeMetricFamily("octavo_waiting_requests", "Requests in the queue now", labels=("model", "version"))
        for key, one in known:
            padding.add_metric(key, one.sums["padding"])
            waiting.add_metric(key, one.sums["waiting"])
        yield padding
        yield waiting

    def text(self) -> Tuple[bytes, str]:
        """The registry in Prometheus' text format, and its content type."""
        made: Any = prometheus.generate_latest(self.registry)
        return made, prometheus.CONTENT_TYPE_LATEST
