"""Our estimate of a peak is Grappler's own, recorded by tests/oracles/record_grappler.py."""

from lowtide.frameworks.tensorflow.grappler.pressure import estimated_pressure, virtual_order
from tests.oracles.grappler_records import RECORDS, graph_of, source


def test_nodes_run_in_the_order_of_the_virtual_cluster() -> None:
    for record in RECORDS:
        names = [node["name"] for node in record["nodes"]]
        places = {name: place for place, name in enumerate(names)}
        inputs = [[places[source(text)] for text in node["inputs"]] for node in record["nodes"]]
        assert virtual_order(names, inputs, [node["ns"] for node in record["nodes"]]) == list(range(len(names)))


def test_the_peak_and_what_is_live_then_are_the_recorded_ones() -> None:
    """On networks, where ops take few microseconds, times of the records are too coarse to tell what overlaps."""
    exact = 0
    for record in RECORDS:
        graph = graph_of(record)
        pressure = estimated_pressure(graph, 0, 0)
        assert 0.7 * record["peak_bytes"] < pressure.excess_bytes < 1.3 * record["peak_bytes"]
        if pressure.excess_bytes == record["peak_bytes"]:
            exact += 1
            assert {graph.buffer_names[each.buffer] for each in pressure.live} == {row[0] for row in record["live"]}
    assert exact > 0.95 * len(RECORDS)
