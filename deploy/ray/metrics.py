"""Copies a replica's metrics to Ray, whose agent on each node exports them to Prometheus.

`GET /metrics` through Ray's proxy is that of one replica, whichever was chosen.
"""

import threading
import time
from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from ray.util.metrics import Gauge

_PERIOD_S: Final = 5.0
_LEFT_OUT: Final = ("process_", "python_")  # Ray exports these of its workers


def export(*registries: CollectorRegistry) -> None:
    """Copy all samples to Ray every few seconds, in a thread of its own."""
    gauges: dict[str, Gauge] = {}

    def copy_periodically() -> None:
        while True:
            copy(gauges, (one for registry in registries for one in registry.collect()))
            time.sleep(_PERIOD_S)

    threading.Thread(target=copy_periodically, name="metrics", daemon=True).start()


def copy(gauges: dict[str, Gauge], metrics: Iterable[Metric]) -> None:
    """Set a gauge of Ray, by name, to the value of each sample; missing ones are added.

    A counter is a gauge that only grows, and so is a bucket of a histogram: `rate` and
    `histogram_quantile` accept them.
    """
    for metric in metrics:
        for sample in metric.samples:
            if sample.name.endswith("_created") or sample.name.startswith(_LEFT_OUT):
                continue
            if sample.name not in gauges:
                keys = tuple(sorted(sample.labels))
                gauges[sample.name] = Gauge(sample.name, metric.documentation, tag_keys=keys)
            gauges[sample.name].set(sample.value, sample.labels)
