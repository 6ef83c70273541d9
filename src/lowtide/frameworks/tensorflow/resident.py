"""Measure the resident memory that a run adds."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.session import open_session, tensorflow

_MODULE = "lowtide.frameworks.tensorflow.resident"
_SECONDS = 600
_MAPPED_BYTES = str(2**16)
_STATUS = Path("/proc/self/status")


def added_resident_bytes(
    graph: GraphDef,
    feeds: Mapping[str, Any],
    fetches: Sequence[str],
    starts: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> int:
    """Return the resident bytes that a run of a graph adds to a process, without its feeds.

    The second of two runs is measured. Freed allocations over 64 KiB return to the system. Raises UnsupportedError if
    the run fails and on systems other than Linux, MissingExtraError without TensorFlow.
    """
    if not Path("/proc/self/clear_refs").exists():
        raise UnsupportedError("resident memory can be measured on Linux only")
    tensorflow()
    fed_to_starts = {name: value for _, fed in starts for name, value in fed.items()}
    asked = {"starts": [(target, list(fed)) for target, fed in starts], "fetches": list(fetches)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "graph.pb").write_bytes(graph.SerializeToString())
        (folder / "asked.json").write_text(json.dumps(asked))
        np.savez(folder / "feeds.npz", **feeds)
        np.savez(folder / "starts.npz", **fed_to_starts)
        settings = {"MALLOC_MMAP_THRESHOLD_": _MAPPED_BYTES, "MALLOC_TRIM_THRESHOLD_": _MAPPED_BYTES}
        command = [sys.executable, "-m", _MODULE, name]
        environment = {**os.environ, **settings}
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS, env=environment)
    if run.returncode:
        raise UnsupportedError(f"the measuring process failed: {one_line(RuntimeError(run.stderr[-400:]))}")
    return int(json.loads(run.stdout)["added_bytes"])


def main() -> None:
    """Run the graph in the folder `argv[1]`; print the added bytes."""
    folder = Path(sys.argv[1])
    asked = json.loads((folder / "asked.json").read_text())
    feeds, starts = (dict(np.load(folder / name)) for name in ("feeds.npz", "starts.npz"))
    with open_session(GraphDef.parse((folder / "graph.pb").read_bytes())) as session:
        for target, fed in asked["starts"]:
            session.run(target, {name: starts[name] for name in fed})
        del starts
        session.run(asked["fetches"], feeds)  # kernels allocate their state in the first run
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
        session.run(asked["fetches"], feeds)
        json.dump({"added_bytes": max(0, _resident("VmHWM") - before)}, sys.stdout)


def _resident(name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", _STATUS.read_text())
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    main()
