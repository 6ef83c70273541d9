"""The peak of the real allocator: one run of a graph in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.running.session import tensorflow

_CHILD = "lowtide.frameworks.tensorflow.running.child"
_SECONDS = 600
_LEAST_MAPPED = str(2**16)


def added_resident_bytes(
    graph: GraphDef,
    feeds: Mapping[str, Any],
    fetches: Sequence[str],
    starts: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> int:
    """Return by how much a run of a graph raises the resident memory of a process, results included and feeds not.

    The graph runs twice there, on one thread and with no optimizer on; the second run is measured. What is larger than
    64 KiB goes back to the system where it is freed, so that resident memory follows TensorFlow's allocator; smaller
    values, and what kernels need for themselves, are in the figure. Raises UnsupportedError where it cannot be run, and
    on systems other than Linux; MissingExtraError where TensorFlow is not installed.
    """
    if not Path("/proc/self/clear_refs").exists():
        raise UnsupportedError("resident memory is measured on Linux only")
    tensorflow()
    fed_to_starts = {name: value for _, fed in starts for name, value in fed.items()}
    arrays = [*feeds.values(), *fed_to_starts.values()]
    keys = [f"array{number}" for number in range(len(arrays))]
    asked = {
        "feeds": dict(zip(feeds, keys, strict=False)),
        "fed_to_starts": dict(zip(fed_to_starts, keys[len(feeds) :], strict=True)),
        "starts": [(target, list(fed)) for target, fed in starts],
        "fetches": list(fetches),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "graph.pb").write_bytes(graph.SerializeToString())
        (folder / "asked.json").write_text(json.dumps(asked))
        named: dict[str, Any] = dict(zip(keys, map(np.asarray, arrays), strict=True))
        np.savez(folder / "arrays.npz", **named)
        settings = {"MALLOC_MMAP_THRESHOLD_": _LEAST_MAPPED, "MALLOC_TRIM_THRESHOLD_": _LEAST_MAPPED}
        command = [sys.executable, "-m", _CHILD, name]
        environment = {**os.environ, **settings}
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment)
    if run.returncode:
        raise UnsupportedError(f"the process that measures failed: {one_line(RuntimeError(run.stderr[-400:]))}")
    return int(json.loads(run.stdout)["added_bytes"])
