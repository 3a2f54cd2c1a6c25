"""The metrics of all processes in one exposition."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from service.workers.protocol import MetricSample, MetricSamples

# By family, and then by name and labels.
_Sums = defaultdict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]]

# Only the service's own metrics can be summed, not those of a worker's process and interpreter.
_OURS = "steno_"


def snapshot(registry: CollectorRegistry) -> MetricSamples:
    """Return the samples of a worker's metrics."""
    return [
        (family.name, sample.name, list(sample.labels.items()), sample.value)
        for family in registry.collect()
        if family.name.startswith(_OURS)
        for sample in family.samples
    ]


class Totals:
    """The sums over the main process, its workers, and workers that ended.

    Args:
        registry: that of the main process, which has all families.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._ended: _Sums = defaultdict(dict)

    def retire(self, samples: MetricSamples) -> None:
        """Keep the counters and histograms of a worker that ended, so that no sum falls."""
        kept = {family.name for family in self._registry.collect() if family.type in ("counter", "histogram")}
        _add(self._ended, (sample for sample in samples if sample[0] in kept))

    def exposition(self, workers: Sequence[MetricSamples]) -> Callable[[], bytes]:
        """Return a function, for any thread, that writes all metrics in Prometheus' text format.

        A worker that is retired after this call counts once.

        Args:
            workers: the samples of the workers that were not retired.
        """
        sums: _Sums = defaultdict(dict, {family: series.copy() for family, series in self._ended.items()})

        def written() -> bytes:
            for samples in workers:
                _add(sums, samples)
            return generate_latest(_Summed(self._registry, sums))

        return written


@dataclass(frozen=True, slots=True)
class _Summed:
    """Collects, once, the families of a registry, with the sums of other processes added to its samples."""

    registry: CollectorRegistry
    sums: _Sums

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for family in self.registry.collect():
            sums = self.sums[family.name]
            ours = [
                sample._replace(value=sample.value + sums.pop((sample.name, tuple(sample.labels.items())), 0.0))
                for sample in family.samples
            ]
            family.samples = ours + [Sample(name, dict(labels), value) for (name, labels), value in sums.items()]
            yield family


def _add(sums: _Sums, samples: Iterable[MetricSample]) -> None:
    for family, name, labels, value in samples:
        key = name, tuple((label, text) for label, text in labels)
        sums[family][key] = sums[family].get(key, 0.0) + value
