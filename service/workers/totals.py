"""The metrics of all processes in one exposition."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from service.workers.protocol import MetricSample, MetricSamples

_Series = tuple[str, tuple[tuple[str, str], ...]]

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
        self._ended: dict[_Series, float] = {}
        self._families: dict[_Series, str] = {}

    def retire(self, samples: MetricSamples) -> None:
        """Keep the counters and histograms of a worker that ended, so that no sum falls."""
        kept = {family.name for family in self._registry.collect() if family.type in ("counter", "histogram")}
        self._add(self._ended, (sample for sample in samples if sample[0] in kept))

    def exposition(self, workers: Sequence[MetricSamples]) -> Callable[[], bytes]:
        """Return a function, for any thread, that writes all metrics in Prometheus' text format.

        A worker that is retired after this call counts once.

        Args:
            workers: the samples of the workers that were not retired.
        """
        sums = dict(self._ended)

        def written() -> bytes:
            for samples in workers:
                self._add(sums, samples)
            return generate_latest(_Summed(self._registry, sums, self._families))

        return written

    def _add(self, sums: dict[_Series, float], samples: Iterable[MetricSample]) -> None:
        for family, name, labels, value in samples:
            key = name, tuple((label, text) for label, text in labels)
            self._families[key] = family
            sums[key] = sums.get(key, 0.0) + value


class _Summed:
    """Collects, once, the families of a registry, with the sums of other processes added to its samples."""

    def __init__(
        self, registry: CollectorRegistry, sums: Mapping[_Series, float], families: Mapping[_Series, str]
    ) -> None:
        self._registry = registry
        self._sums = dict(sums)
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        elsewhere: dict[str, list[_Series]] = {}
        for key in self._sums:
            elsewhere.setdefault(self._families[key], []).append(key)
        for family in self._registry.collect():
            if family.name not in elsewhere:
                yield family
                continue
            samples = []
            for sample in family.samples:
                key = sample.name, tuple(sample.labels.items())
                samples.append(sample._replace(value=sample.value + self._sums.pop(key, 0.0)))
            samples += [
                Sample(key[0], dict(key[1]), self._sums[key]) for key in elsewhere[family.name] if key in self._sums
            ]
            whole = Metric(family.name, family.documentation, family.type, family.unit)
            whole.samples = samples
            yield whole
