"""`lowtide fits`: yes, or the cheapest techniques that make it fit, or why nothing does."""

import json
from pathlib import Path

from lowtide.engine.graph import GraphBuilder, Lifetime, write_graph_file
from tests.cli.conftest import Command


def test_a_device_is_filled_as_it_stands_then_in_another_order_then_not_at_all(
    lowtide: Command, graph_file: Path
) -> None:
    """The program holds 5000 bytes throughout, and 2210 more as it stands, 1211 in the best order."""
    for device, code, techniques in ((7210, 0, []), (7209, 0, ["reorder", "share"]), (6211, 0, ["reorder", "share"])):
        done = lowtide("fits", graph_file, "--device", f"{device}B", "--json")
        found = json.loads(done.stdout)
        assert (done.code, found["fits"], found["techniques"]) == (code, True, techniques)
        assert found["persistent_bytes"] == 5000
        assert found["baseline_peak_bytes"] == 2210
    done = lowtide("fits", graph_file, "--device", "6000B")
    assert done.code == 1
    assert done.stdout.startswith("diamond on 6,000 B usable: does not fit, tried with reorder,share,recompute\n")
    assert "why not" in done.stdout


def test_what_runs_again_to_fit_has_a_price_and_a_next_command(lowtide: Command, tmp_path: Path) -> None:
    builder = GraphBuilder("kept for later")
    sizes = {"x": 10, "kept": 500, "mid": 100, "big": 1000, "result": 10}
    x, kept, mid, big, result = (builder.add_buffer(name, size) for name, size in sizes.items())
    builder.add_op("begin", "begin", writes=[x])
    builder.add_op("cheap", "cheap", reads=[x], writes=[kept], cost=0.25)
    builder.add_op("grow", "grow", reads=[kept], writes=[mid])
    builder.add_op("grow more", "grow", reads=[mid], writes=[big])
    builder.add_op("shrink", "sum", reads=[big, x], writes=[result])
    out = builder.add_buffer("out", 10, Lifetime.OUTPUT)
    builder.add_op("join", "add", reads=[kept, result, x], writes=[out])
    path = tmp_path / "kept.graph.json"
    write_graph_file(builder.build(), path)
    done = lowtide("fits", path, "--device", "1200B")
    assert done.code == 0
    assert "fits with reorder,share,recompute" in done.stdout
    assert "extra time       4.76 %" in done.stdout
    options = json.loads(lowtide("fits", path, "--device", "1200B", "--json").stdout)["options"]
    planned = json.loads(lowtide("plan", path, "--json", *options.split()).stdout)
    assert (planned["shortfall"], planned["extra_cost"]) == (None, 0.25)


def test_the_size_of_a_device_needs_a_unit(lowtide: Command, tmp_path: Path) -> None:
    builder = GraphBuilder("two mebibytes")
    out = builder.add_buffer("out", 2**21, Lifetime.OUTPUT)
    builder.add_op("make", "make", writes=[out])
    path = tmp_path / "large.graph.json"
    write_graph_file(builder.build(), path)
    done = lowtide("fits", path, "--device", "24")
    assert done.code == 2
    assert "24 is 24 bytes; write '24MiB' or '24GiB', or '24B' for bytes" in done.stderr
    assert lowtide("fits", path, "--device", "24G").code == 0
