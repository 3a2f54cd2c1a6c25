"""The metrics of all processes in one exposition."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from service.workers.protocol import Series

# Only the service's own metrics can be summed, not those of a worker's process and interpreter.
_OURS = "steno_"


def snapshot(registry: CollectorRegistry) -> Series:
    """Return the metrics of a worker."""
    return {
        family.name: {(one.name, tuple(one.labels.items())): one.value for one in family.samples}
        for family in registry.collect()
        if family.name.startswith(_OURS)
    }


class Totals:
    """The sums over the main process, whose registry has all families, its workers, and workers that ended."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._ended: Series = {}

    def retire(self, series: Series) -> None:
        """Keep the counters and histograms of a worker that ended, so that no sum falls."""
        gauges = {family.name for family in self._registry.collect() if family.type == "gauge"}
        _add(self._ended, {family: values for family, values in series.items() if family not in gauges})

    def exposition(self, workers: Sequence[Series]) -> Callable[[], bytes]:
        """Return a function, for any thread, that writes all metrics in Prometheus' text format.

        Of a worker that is retired after this call, the metrics given here count once.
        """
        sums = {family: values.copy() for family, values in self._ended.items()}

        def written() -> bytes:
            for series in workers:
                _add(sums, series)
            return generate_latest(_Summed(self._registry, sums))

        return written


@dataclass(frozen=True, slots=True)
class _Summed:
    """Collects, once, the families of a registry, with the sums of other processes added to its samples."""

    registry: CollectorRegistry
    sums: Series

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        for family in self.registry.collect():
            sums = self.sums.get(family.name, {})
            ours = [
                one._replace(value=one.value + sums.pop((one.name, tuple(one.labels.items())), 0.0))
                for one in family.samples
            ]
            family.samples = ours + [Sample(name, dict(labels), value) for (name, labels), value in sums.items()]
            yield family


def _add(sums: Series, series: Series) -> None:
    for family, values in series.items():
        of_family = sums.setdefault(family, {})
        for key, value in values.items():
            of_family[key] = of_family.get(key, 0.0) + value
