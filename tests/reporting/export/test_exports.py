"""Exports are read back by the tools they are for, or by their parsers, and say what the plan says."""

import json
import pickle
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given

from lowtide import minimize, open_model, pack
from lowtide.core.errors import InputError, UsageError
from lowtide.engine.costs import price
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.packing.csv_file import read_buffer_file
from lowtide.engine.plan import Plan, StepKind
from lowtide.frameworks.memory_snapshot import open_snapshot
from lowtide.reporting.export.table import FORMATS, ending_of, export
from tests.examples import examples
from tests.reporting.page.test_page import layers
from tests.strategies import graphs


def exported(graph: Graph, plan: Plan, ending: str, space: str | None = None) -> bytes:
    """Return an export priced by the graph's own costs."""
    return export(graph, plan, ending, space=space, prices=price(graph, "given"))


def most_allocated(trace: list[dict[str, Any]]) -> int:
    """Return the most bytes that a snapshot's events hold at once; no two of them may share a byte."""
    alive: dict[int, int] = {}
    most = 0
    for event in trace:
        if event["action"] == "alloc":
            begin, end = event["addr"], event["addr"] + event["size"]
            assert all(end <= other or begin >= other + size for other, size in alive.items())
            alive[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert alive.pop(event["addr"]) == event["size"]
        most = max(most, sum(alive.values()))
    return most


@examples(40)
@given(graphs())
def test_a_snapshot_peaks_where_the_plan_does_and_shares_no_byte(graph: Graph) -> None:
    result = minimize(graph)
    snapshot = pickle.loads(exported(graph, result.plan, ".pickle"))
    for space, trace in zip(graph.spaces, snapshot["device_traces"], strict=True):
        assert most_allocated(trace) == result.peak_bytes[space.name]
        assert [event["time_us"] for event in trace] == sorted(event["time_us"] for event in trace)


def test_the_viewer_of_pytorch_reads_a_snapshot() -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz")
    graph = layers(5)
    snapshot = pickle.loads(exported(graph, minimize(graph).plan, ".pickle"))
    assert "total_reserved: 6.0MiB" in viewer.segsum(snapshot)
    assert viewer.trace(snapshot).startswith("Device 0")
    assert "snapshot.pickle" in viewer.trace_plot(snapshot)


@examples(40)
@given(graphs())
def test_a_snapshot_that_is_read_back_has_the_peak_of_the_plan(graph: Graph) -> None:
    """Whatever runs, what was observed is what is planned from."""
    result = minimize(graph)
    snapshot = pickle.loads(exported(graph, result.plan, ".pickle"))
    if not any(snapshot["device_traces"]):
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "observed.pickle"
        path.write_bytes(exported(graph, result.plan, ".pickle"))
        observed = minimize(open_snapshot(str(path)).graph)
    peaks = [result.peak_bytes[space.name] for space in graph.spaces]
    assert list(observed.baseline_peak_bytes.values()) == [
        peak for peak, trace in zip(peaks, snapshot["device_traces"], strict=True) if trace
    ]
    assert observed.moved_ops == 0


def test_a_recorded_snapshot_becomes_a_graph_with_the_users_own_lines(tmp_path: Path) -> None:
    inner = {"filename": "/lib/torch/nn/functional.py", "line": 9, "name": "relu"}
    own = {"filename": "/home/me/train.py", "line": 12, "name": "forward"}

    def event(action: str, addr: int, size: int, time: int) -> dict[str, Any]:
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time, "frames": [inner, own]}

    block = {"size": 512, "requested_size": 500, "state": "active_allocated", "frames": [own]}
    snapshot = {
        "segments": [{"device": 0, "address": 4096, "total_size": 512, "blocks": [block]}],
        "device_traces": [
            [
                event("free_requested", 9000, 64, 0),
                event("free_completed", 9000, 64, 0),
                event("alloc", 9000, 100, 10),
                event("alloc", 9200, 50, 20),
                event("free_completed", 9000, 100, 30),
            ],
            [],
        ],
    }
    path = tmp_path / "rank0.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    graph = open_model(str(path)).graph
    assert [space.name for space in graph.spaces] == ["device0"]
    assert graph.persistent_bytes() == {"device0": 500}
    assert list(graph.buffer_names[:3]) == [f"/home/me/train.py:12 forward{rest}" for rest in ("", " #1", " #2")]
    classes = (Lifetime.DONATED, Lifetime.INTERMEDIATE, Lifetime.OUTPUT, Lifetime.PERSISTENT)
    assert [Lifetime(number) for number in graph.lifetimes.tolist()] == list(classes)
    assert graph.cost.tolist() == pytest.approx([0, 1e-5, 1e-5, 1e-5])
    assert minimize(graph).peak_bytes == {"device0": 150}


class _Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("ran",))


@pytest.mark.parametrize(
    "content",
    [
        pickle.dumps({"segments": [], "device_traces": [[_Runs()]]}),
        pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": -1, "size": 1}]]}),
        pickle.dumps({"segments": [], "device_traces": [["alloc"]]}),
        pickle.dumps({"segments": [], "device_traces": []}),
        pickle.dumps({"segments": []}),
        pickle.dumps(["segments"]),
        pickle.dumps({"segments": [], "device_traces": []})[:-9],
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_line_and_runs_nothing(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.pickle"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.pickle: "):
        open_model(str(path))
    assert capsys.readouterr().out == ""


@examples(40)
@given(graphs())
def test_a_trace_counts_the_live_bytes_of_the_plan(graph: Graph) -> None:
    result = minimize(graph)
    events = json.loads(exported(graph, result.plan, ".trace.json"))["traceEvents"]
    for space in range(len(graph.spaces)):
        counted = [event["args"]["bytes"] for event in events if event["ph"] == "C" and event["pid"] == space + 1]
        assert max(counted) == result.peak_bytes[graph.spaces[space].name]
    assert sum(event["ph"] == "X" for event in events) == len(result.plan.order())
    opened = {(event["pid"], event["id"]) for event in events if event["ph"] == "b"}
    assert opened == {(event["pid"], event["id"]) for event in events if event["ph"] == "e"}
    assert all(event["ts"] >= 0 for event in events if "ts" in event)


@examples(40)
@given(graphs())
def test_packing_the_exported_buffers_needs_what_the_plans_arena_needs(graph: Graph) -> None:
    result = minimize(graph)
    for space in graph.spaces:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "buffers.csv"
            path.write_bytes(exported(graph, result.plan, ".csv", space.name))
            buffers = read_buffer_file(path).buffers
        assert pack(buffers).lower_bound_bytes <= result.arena_bytes[space.name]
        assert pack(buffers).arena_bytes == result.arena_bytes[space.name]


def test_a_dot_file_has_every_op_and_every_read() -> None:
    builder = GraphBuilder('a "quoted" \\ name')
    x, y = builder.add_buffer("x", 2048, Lifetime.INPUT), builder.add_buffer("y\n<b>", 10)
    builder.add_op('first "op"', "make", reads=[x], writes=[y])
    builder.add_op("second\\n", "use", reads=[x, y], writes=[builder.add_buffer("z", 1, Lifetime.OUTPUT)])
    graph = builder.build()
    text = exported(graph, Plan.baseline(graph), ".dot").decode()
    assert [text.count(edge) for edge in ("b0 -> o0", "b0 -> o1", "o0 -> o1")] == [1, 1, 1]
    assert '[label="2,048 B"' in text
    parser = shutil.which("nop")
    if parser is not None:
        done = subprocess.run([parser], input=text, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert done.stdout.count("->") == 3


@examples(20)
@given(graphs())
def test_a_picture_of_any_plan_is_xml_with_axes_and_their_unit(graph: Graph) -> None:
    plan = minimize(graph).plan
    for space in graph.spaces:
        root = ElementTree.fromstring(exported(graph, plan, ".svg", space.name))
        texts = [node.text or "" for node in root.iter() if node.tag.endswith("text")]
        drawn = np.isin([row.space for row in plan.addresses], [graph.spaces.index(space)]).any()
        assert ("step" in texts and any(text.startswith("address, ") for text in texts)) or not drawn


def test_a_plan_without_addresses_is_packed_for_its_export() -> None:
    graph = layers(4)
    plan = Plan.baseline(graph)
    snapshot = pickle.loads(exported(graph, plan, ".pickle"))
    assert most_allocated(snapshot["device_traces"][0]) == 5 * 2**20 + 4
    assert (plan.kinds == StepKind.RUN).sum() == 5


def test_unknown_endings_and_spaces_are_refused() -> None:
    graph = layers(2)
    with pytest.raises(UsageError, match=r"ends in \.pickle, "):
        ending_of("plan.png")
    assert ending_of("A.Trace.JSON.gz") == ".trace.json"
    assert set(FORMATS) == {".pickle", ".trace.json", ".csv", ".graph.json", ".dot", ".svg"}
    with pytest.raises(UsageError, match="choose one of device"):
        exported(graph, Plan.baseline(graph), ".svg", "nowhere")
    with pytest.raises(UsageError, match="holds all"):
        exported(graph, Plan.baseline(graph), ".dot", "device")
