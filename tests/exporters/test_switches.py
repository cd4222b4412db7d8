"""What is switched off in the configuration."""

from prometheus_client.parser import text_string_to_metric_families

from pymon.exporters.prometheus import PrometheusRenderer
from pymon.model.catalog import CATALOG
from pymon.model.distribution import Histogram
from pymon.model.snapshot import Snapshot
from tests.exporters.test_prometheus import STATS


class Everything:
    """An exporter that has a sample of each family of the catalogue."""

    def of(self, snapshot):
        for metric in CATALOG:
            value = Histogram(1e-6, (0, 1), 1.0) if metric.kind == "histogram" else 1
            yield metric.name, None, ((metric.name, tuple("x" for _ in metric.labels), value),)


def told(disabled=()):
    renderer = PrometheusRenderer(10_000, Everything(), frozenset(disabled))
    text = renderer.render(Snapshot(0, 0, ()), (), STATS).decode()
    assert renderer.series_dropped_total == 0
    return {
        family.name.removesuffix("_total"): len(family.samples)
        for family in text_string_to_metric_families(text)
    }


def test_each_family_can_be_switched_off_and_takes_no_other_with_it():
    everything = told()
    assert len(everything) == len(CATALOG)

    for metric in CATALOG:
        left = told([metric.name])
        assert everything.keys() - left.keys() == {metric.name.removesuffix("_total")}
        assert left.items() <= everything.items()


def test_all_of_them_at_once_leave_nothing():
    assert told(metric.name for metric in CATALOG) == {}
