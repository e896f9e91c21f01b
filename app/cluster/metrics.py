"""The metrics of a replica as metrics of Ray, whose agent on each node gives them to Prometheus.

`GET /metrics` through Ray's proxy is that of one replica, whichever was asked.
"""

import threading
import time
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from ray.util.metrics import Gauge

_PERIOD_S: Final = 5.0
_LEFT_OUT: Final = ("process_", "python_")
"""Ray tells these of its workers itself."""


def export(*registries: CollectorRegistry) -> None:
    """Copy all samples to Ray from now on, every few seconds, in a thread of its own."""
    copies = Copies()

    def copy_for_ever() -> None:
        while True:
            copies.update(one for registry in registries for one in registry.collect())
            time.sleep(_PERIOD_S)

    threading.Thread(target=copy_for_ever, name="metrics", daemon=True).start()


class Copies:
    """Gauges of Ray that have the values of samples; Ray adds which replica they are of.

    A counter is a gauge that only grows, and a bucket of a histogram too: `rate` and
    `histogram_quantile` take them. Names get the prefix `ray_`.
    """

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}

    def update(self, metrics: Iterable[Metric]) -> None:
        """Copy the values of samples."""
        for metric in metrics:
            for sample in metric.samples:
                if sample.name.endswith("_created") or sample.name.startswith(_LEFT_OUT):
                    continue
                gauge = self._gauges.get(sample.name)
                if gauge is None:
                    keys = tuple(sorted(sample.labels))
                    gauge = Gauge(sample.name, metric.documentation, tag_keys=keys)
                    self._gauges[sample.name] = gauge
                gauge.set(sample.value, sample.labels)
