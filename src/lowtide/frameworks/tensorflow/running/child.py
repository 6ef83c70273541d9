"""Run by a process of its own: how much resident memory one run of a graph adds at its peak."""

import json
import re
import sys
from pathlib import Path

import numpy as np

from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.running.session import open_session

_STATUS = Path("/proc/self/status")


def main() -> None:
    """Read a graph and what it is fed from the folder named first, and print the bytes that a run adds, as JSON."""
    folder = Path(sys.argv[1])
    asked = json.loads((folder / "asked.json").read_text())
    arrays = np.load(folder / "arrays.npz")
    feeds, starts = ({name: arrays[key] for name, key in asked[which].items()} for which in ("feeds", "fed_to_starts"))
    with open_session(GraphDef.parse((folder / "graph.pb").read_bytes())) as session:
        for target, fed in asked["starts"]:
            session.run(target, {name: starts[name] for name in fed})
        del starts
        session.run(asked["fetches"], feeds)  # kernels keep what they set up in their first run
        before = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        session.run(asked["fetches"], feeds)
        json.dump({"added_bytes": max(0, _resident("VmHWM") - before)}, sys.stdout)


def _resident(name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", _STATUS.read_text())
    return int(found[1]) * 1024 if found else 0


if __name__ == "__main__":
    main()
