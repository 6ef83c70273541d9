"""The child process: a JSON request on stdin, a JSON answer on stdout."""

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from lowtide.core.errors import LowtideError, UnsupportedError
from lowtide.frameworks.onnx.loading.load import load_model
from lowtide.frameworks.onnx.operators.nodes import all_nodes
from lowtide.frameworks.onnx.running.inputs import digest, random_inputs
from lowtide.frameworks.onnx.running.levels import LEVELS, open_on_cpu, quiet_options, write_optimized
from lowtide.frameworks.onnx.running.machine import blocked_nodes
from lowtide.frameworks.onnx.running.planned_session import PlannedSession
from lowtide.frameworks.resident import ResidentGrowth

_DRAWS_FOR_BRANCHES = 8
"""Inputs on which levels are compared if a branch that one of them does not take may differ."""


def _optimize(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write the optimized model, by default for any machine, at the highest level with the same bits as "none"."""
    model, output = Path(request["model"]), Path(request["output"])
    if request["level"] is not None:
        write_optimized(model, quiet_options(request["level"]), output)
        return {"level": request["level"], "is_faster_here": False}
    given = load_model(model)
    draws = _DRAWS_FOR_BRANCHES if any(node.op_type == "If" for node in all_nodes(given.graph)) else 1
    inputs = [random_inputs(given, request["dims"], seed, otherwise="give a --level") for seed in range(draws)]
    write_optimized(model, quiet_options("none"), output)
    expected = _digests(output, inputs)
    is_faster_here = False
    for level in LEVELS:
        write_optimized(model, quiet_options(level), output)
        if blocked_nodes(load_model(output)):
            is_faster_here = True
        elif level == "none" or _digests(output, inputs) == expected:
            return {"level": level, "is_faster_here": is_faster_here}
    raise UnsupportedError("the model is in the layout of one kind of processor; give a --level")


def _compare(request: Mapping[str, Any]) -> dict[str, Any]:
    model = Path(request["model"])
    inputs = random_inputs(load_model(model), {}, otherwise="plan without chunks")
    pairs = [tuple(pair) for pair in request["pairs"]]
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    found = dict(zip(names, _open_seeded(model).run(names, inputs), strict=True))
    return {"equal": [digest([found[one]]) == digest([found[other]]) for one, other in pairs]}


def _digests(model: Path, inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    session = _open_seeded(model)
    return [digest(session.run(None, each)) for each in inputs]


def _open_seeded(model: Path) -> Any:
    import_module("onnxruntime").set_seed(0)
    return open_on_cpu(model, quiet_options("none"))


def _measure(request: Mapping[str, Any]) -> dict[str, Any]:
    onnxruntime: Any = import_module("onnxruntime")
    model = Path(request["model"])
    inputs = random_inputs(load_model(model), request["dims"])
    options = quiet_options(request.get("level", "all"))
    options.intra_op_num_threads = request.get("threads", 0)
    for name, value in request.get("options", {}).items():
        setattr(options, name, value)
    onnxruntime.set_seed(0)
    if request.get("arena_grows_as_asked"):
        memory = onnxruntime.OrtMemoryInfo(
            "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
        )
        onnxruntime.create_and_register_allocator(memory, onnxruntime.OrtArenaCfg(0, 1, -1, -1))
        options.add_session_config_entry("session.use_env_allocators", "1")
    session = PlannedSession(model, options) if request["planned"] else open_on_cpu(model, options)
    measured = _measure_runs(session, inputs, request.get("runs", 10), as_it_comes=request.get("as_it_comes", False))
    if not request["planned"]:
        return measured
    return measured | {
        "arena_bytes": session.arena.size_bytes,
        "reserved_bytes": session.reserved_bytes,
        "fallbacks": session.use.fallbacks.total(),
        "addresses": session.noted_addresses(),
    }


def _measure_runs(session: Any, inputs: Mapping[str, Any], runs: int, *, as_it_comes: bool) -> dict[str, Any]:
    """Measure a session; memory growth excludes inputs, weights and, unless `as_it_comes`, code."""
    growth = ResidentGrowth(load_files=not as_it_comes)
    seconds: list[float] = []
    results: Sequence[Any] = ()
    for _ in range(runs):
        results = ()
        start = time.perf_counter()
        results = session.run(None, inputs)
        seconds.append(time.perf_counter() - start)
    return {
        "growth_bytes": growth.highest_bytes(),
        "resident_bytes": growth.resident_bytes(),
        "seconds": statistics.median(seconds[2:] or seconds),
        "digest": digest(results),
    }


_DO = {"optimize": _optimize, "compare": _compare, "measure": _measure}

if __name__ == "__main__":
    given = json.loads(sys.stdin.read())
    try:
        answer = _DO[given["do"]](given)
    except LowtideError as error:
        answer = {"refusal": str(error)}
    except Exception as error:  # the parent reports it
        answer = {"error": str(error) or type(error).__name__}
    json.dump(answer, sys.stdout)
