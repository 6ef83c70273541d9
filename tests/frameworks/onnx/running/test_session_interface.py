"""The rest of InferenceSession's interface on a Session: options of a run, profiles, runs that somebody waits for."""

import json
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from lowtide.onnx import Session


def _content() -> bytes:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Sin", ["a"], ["y"])]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [50000]) for name in "xy"]
    graph = helper.make_graph(nodes, "two", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@pytest.fixture(name="feed")
def feed_fixture() -> dict[str, Any]:
    """Give the inputs of a run."""
    return {"x": np.linspace(-1, 1, 50000, dtype=np.float32)}


def _stock(feed: dict[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(_content(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0]


def test_a_run_that_its_options_end_is_not_learned_from(feed: dict[str, Any]) -> None:
    """Options reach the runtime; the next run is recorded and right."""
    session = Session(_content())
    ended, plain = onnxruntime.RunOptions(), onnxruntime.RunOptions()
    ended.terminate = True
    with pytest.raises(Exception, match="terminate"):
        session.run(None, feed, ended)
    for _ in range(3):
        assert session.run(["y"], feed, plain)[0].tobytes() == _stock(feed).tobytes()
    assert (session.use.recorded, session.use.served, session.arena.live_blocks) == (1, 2, 0)


def test_a_profile_tells_every_node(feed: dict[str, Any], tmp_path: Path) -> None:
    """Profiling works as ever, and its runs are served like all others."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = Session(_content(), options)
    for _ in range(2):
        session.run(None, feed)
    events = json.loads(Path(session.end_profiling()).read_text())
    assert {"Exp", "Sin"} <= {event.get("args", {}).get("op_name") for event in events}
    assert session.use.served == 1


def test_runs_that_go_on_beside_the_caller_allocate_as_ever(feed: dict[str, Any]) -> None:
    """run_async gives the right bits from a thread of the runtime's; the session's runs are served meanwhile."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = Session(_content(), options)
    session.run(None, feed)
    done, results = Event(), []

    def take(outputs: Any, waiting: Event, error: str) -> None:
        results.append((outputs, error))
        waiting.set()

    session.run_async(None, feed, take, done)
    assert session.run(None, feed)[0].tobytes() == _stock(feed).tobytes()
    assert done.wait(60)
    ((outputs, error),) = results
    assert not error
    assert outputs[0].tobytes() == _stock(feed).tobytes()
    assert (session.use.recorded, session.use.served, session.use.fallbacks.total()) == (1, 1, 0)
