"""A PyTorch snapshot shows who holds its peak, what is fragmented, and what a plan can save at most."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from lowtide import open_model
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.plan import Plan
from tests.cli.conftest import Command

MIB = 2**20
BASE = 0x7F5C_0000_0000


def frames(line: int, name: str) -> list[dict[str, Any]]:
    """Return frames as PyTorch records them: C++ first, then Python from the innermost call outward."""
    return [
        {
            "name": "c10::cuda::CUDACachingAllocator::Native::malloc",
            "filename": "??",
            "line": 0,
        },
        {"name": "linear", "filename": "/venv/lib/python3.12/site-packages/torch/nn/functional.py", "line": 125},
        {"name": name, "filename": "/home/me/train.py", "line": line},
        {"name": "<module>", "filename": "/home/me/train.py", "line": 99},
    ]


def event(action: str, where: int, size: int, stack: list[dict[str, Any]], time: int) -> dict[str, Any]:
    """Return an event in the form of PyTorch; one out of memory has the free bytes of the device, not an address."""
    place = {"device_free" if action == "oom" else "addr": where}
    return {
        "action": action,
        **place,
        "size": size,
        "stream": 0,
        "time_us": time,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": stack,
    }


def block(where: int, size: int, state: str, stack: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a block of a segment."""
    return {"address": where, "size": size, "requested_size": size, "state": state, "frames": stack}


def out_of_memory() -> dict[str, Any]:
    """Return a snapshot from after an out-of-memory error: weights, two activations, a gap, and a failed request."""
    attention, loss = frames(12, "attention"), frames(20, "loss")
    large, small = BASE, BASE + 2**32
    trace = [
        event("segment_alloc", small, 20 * MIB, attention, 1),
        event("alloc", small, 8 * MIB, attention, 2),
        event("alloc", small + 8 * MIB, 6 * MIB, attention, 3),
        event("free_requested", small, 8 * MIB, [], 4),
        event("free_completed", small, 8 * MIB, [], 4),
        event("oom", 3 * MIB, 16 * MIB, loss, 5),
        event("free_requested", small + 8 * MIB, 6 * MIB, [], 6),
        event("free_completed", small + 8 * MIB, 6 * MIB, [], 6),
        event("segment_free", small, 20 * MIB, [], 7),
        event("snapshot", 0, 0, [], 8),
    ]
    segment = {
        "device": 0,
        "address": large,
        "total_size": 40 * MIB,
        "allocated_size": 30 * MIB,
        "active_size": 30 * MIB,
        "requested_size": 30 * MIB,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [block(large, 30 * MIB, "active_allocated", []), block(large + 30 * MIB, 10 * MIB, "inactive", [])],
    }
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
    return {
        "segments": [segment],
        "device_traces": [trace, []],
        "allocator_settings": settings,
        "external_annotations": [],
    }


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(out_of_memory()))
    return path


def test_the_peak_of_an_error_includes_the_request_that_failed(snapshot: Path) -> None:
    (recorded,) = open_model(str(snapshot)).recorded
    assert recorded.peak_bytes == (30 + 6 + 16) * MIB
    assert recorded.failed_bytes == 16 * MIB
    assert recorded.failed_at == "/home/me/train.py:20 loss"
    assert recorded.device_free_bytes == 3 * MIB
    assert sum(line.size_bytes for line in recorded.lines) == recorded.peak_bytes
    assert [(line.where, line.size_bytes // MIB) for line in recorded.lines] == [
        ("allocated before the recording", 30),
        ("/home/me/train.py:20 loss (failed)", 16),
        ("/home/me/train.py:12 attention", 6),
    ]


def test_a_device_smaller_than_the_peak_with_the_failed_request_does_not_hold_the_program(
    snapshot: Path, lowtide: Command
) -> None:
    graph = open_model(snapshot).graph
    assert simulate(graph, Plan.baseline(graph)).peak_bytes["device0"] + graph.persistent_bytes()["device0"] == 52 * MIB
    assert lowtide("fits", snapshot, "--device", "48MiB", "--json").code == 1
    assert lowtide("fits", snapshot, "--device", "52MiB", "--json").code == 0


def test_a_plan_of_a_recording_is_about_addresses_only(snapshot: Path, lowtide: Command) -> None:
    shown = " ".join(lowtide("plan", snapshot).stdout.split())
    assert "ops keep their order and none can be recomputed, so only addresses are planned" in shown


def test_generated_code_counts_as_the_line_it_was_made_from(tmp_path: Path) -> None:
    """Snapshots with `augment_with_fx_traces` have the trace of the operation in frames of generated code."""
    trace = (
        '  File "/home/me/train.py", line 3, in step\n    y = f(x)\n  File "/home/me/model.py", line 7, in forward\n'
    )
    compiled = {"name": "call", "filename": "/tmp/torchinductor_me/ab/cab.py", "line": 50}
    traced = {"name": "forward", "filename": "/tmp/fx_generated_1.py", "line": 9, "fx_original_trace": trace}
    snapshot: dict[str, Any] = out_of_memory()
    events = snapshot["device_traces"][0]
    events[1]["frames"] = [traced, *frames(99, "main")]
    events[2]["frames"] = [compiled, *frames(12, "attention")]
    snapshot["device_traces"][0] = [each for each in events[:3] if each["action"] != "oom"]
    path = tmp_path / "compiled.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    (recorded,) = open_model(str(path)).recorded
    places = {line.where for line in recorded.lines}
    assert {"/home/me/model.py:7 forward", "/home/me/train.py:12 attention"} <= places


def test_fragmentation_is_what_was_reserved_at_the_peak_without_tensors(snapshot: Path) -> None:
    """The segment that was returned to the device after the error counts, because it was there at the peak."""
    (recorded,) = open_model(str(snapshot)).recorded
    assert recorded.reserved_bytes == (40 + 20) * MIB
    assert recorded.fragmentation_bytes == (60 - 36) * MIB


def test_no_plan_saves_more_than_what_the_weights_and_the_largest_tensor_leave(snapshot: Path) -> None:
    (recorded,) = open_model(str(snapshot)).recorded
    assert recorded.floor_bytes == (30 + 16) * MIB
    assert recorded.most_saved_bytes == 6 * MIB


def test_inspect_prints_the_lines_the_fragmentation_and_the_bound(snapshot: Path, lowtide: Command) -> None:
    done = lowtide("inspect", snapshot)
    assert done.code == 0
    words = " ".join(done.stdout.split())
    assert "out of memory 16.0 MiB of it failed at /home/me/train.py:20 loss; the device had 3.0 MiB" in words
    assert "fragmentation  24.0 MiB" in done.stdout
    assert "/home/me/train.py:12 attention" in done.stdout
    assert "all else       6.0 MiB of the peak (11.5 %)" in done.stdout
    shown = json.loads(lowtide("inspect", snapshot, "--json").stdout)
    assert shown["recorded"][0]["most_saved_bytes"] == 6 * MIB


def test_without_an_error_the_peak_is_the_most_that_was_allocated(tmp_path: Path) -> None:
    snapshot = out_of_memory()
    snapshot["device_traces"][0] = [each for each in snapshot["device_traces"][0] if each["action"] != "oom"]
    path = tmp_path / "step.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    (recorded,) = open_model(str(path)).recorded
    assert (recorded.peak_bytes, recorded.failed_bytes, recorded.peak_event) == (44 * MIB, None, 3)


def test_a_recording_that_does_not_fit_its_segments_has_no_figure_of_fragmentation(tmp_path: Path) -> None:
    snapshot: dict[str, Any] = {**out_of_memory(), "segments": []}
    path = tmp_path / "cut.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    (recorded,) = open_model(str(path)).recorded
    assert recorded.kept_bytes == 0
    assert recorded.reserved_bytes == 20 * MIB
    snapshot["device_traces"][0].pop(0)
    snapshot["device_traces"][0].pop(-2)
    path.write_bytes(pickle.dumps(snapshot))
    assert open_model(str(path)).recorded[0].fragmentation_bytes is None
