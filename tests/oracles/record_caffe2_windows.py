r"""Run recurrent ops in Caffe2 whose links are several rows wide and whose states begin with several rows; record them.

With Caffe2 as in record_caffe2_runs.py:

    caffe2/bin/python tests/oracles/record_caffe2_windows.py tests/data/caffe2_windows.json.gz

A record holds a net, what was fed, and what came out.
"""

import gzip
import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

STEPS, BATCH, WIDTH = 5, 3, 2


def main(records_path: Path) -> None:
    """Write the records."""
    workspace: Any = importlib.import_module("caffe2.python.workspace")
    records: list[dict[str, Any]] = []
    for seed in range(60):
        net, inputs = _net(random.Random(seed), np.random.default_rng(seed))
        workspace.ResetWorkspace()
        for blob, array in inputs.items():
            workspace.FeedBlob(blob, array)
        workspace.RunNetOnce(net)
        results = {blob: _plain(workspace.FetchBlob(blob)) for blob in net.external_output}
        fed = {blob: _plain(array) for blob, array in inputs.items()}
        records.append({"net": net.SerializeToString().hex(), "inputs": fed, "results": results})
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    records_path.write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


def _net(rng: random.Random, numbers: Any) -> Any:
    """Return a net that keeps what it read in one state, and looks at the last rows of that and at a row of another."""
    core: Any = importlib.import_module("caffe2.python.core")
    window = rng.randint(1, 4)
    n_kept, n_begin = window - 1, rng.randint(1, 3)  # rows that are there before the first step
    back = rng.randint(1, n_begin)
    step = core.Net("step")
    step.Tanh("x_t", "kept_t")
    step.Transpose("last", "by_batch", axes=[1, 0, 2])
    step.FC(["by_batch", "w", "b"], "mixed", axis=1)
    if rng.random() < 0.5:  # of as many elements as the row that it is linked to, in another shape
        step.Reshape("h_back", ["row", "old_shape"], shape=[BATCH, WIDTH])
        step.Sum(["mixed", "row"], "h")
    else:
        step.Reshape("mixed", ["row", "old_shape"], shape=[1, BATCH, WIDTH])
        step.Sum(["row", "h_back"], "h")
    begin = [n_begin, BATCH, WIDTH] if n_begin > 1 else rng.choice([[1, BATCH, WIDTH], [BATCH, WIDTH], [WIDTH]])
    shapes = {
        "x": [STEPS, BATCH, WIDTH],
        "kept_begin": [n_kept, BATCH, WIDTH],
        "h_begin": begin,
        "w": [WIDTH, window * WIDTH],
        "b": [WIDTH],
    }
    net = core.Net("windows")
    settings = {
        "link_internal": ["x_t", "kept_t", "last", "h_back", "h"],
        "link_external": ["x", "kept", "kept", "states", "states"],
        "link_offset": [0, n_kept, 0, n_begin - back, n_begin],
        "link_window": [1, 1, window, 1, 1],
        "recurrent_states": ["kept", "states"],
        "initial_recurrent_state_ids": [1, 2],
        "alias_src": ["kept", "states", "states", "states"],
        "alias_dst": ["all_kept", "all", "last_h", "with_begin"],
        "alias_offset": [n_kept, n_begin, -1, 0],
        "timestep": "timestep",
    }
    proto = step.Proto()
    proto.external_input.extend(["last", "h_back", "w", "b"])
    as_text = rng.random() < 0.5
    outputs = ["all_kept", "all", "last_h", "with_begin", "workspaces"]
    net.RecurrentNetwork(list(shapes), outputs, step_net=str(proto) if as_text else proto, **settings)
    net.Proto().external_input.extend(blob for blob in shapes if blob not in net.Proto().external_input)
    net.Proto().external_output.extend(outputs[:-1])
    fed = {blob: numbers.standard_normal(shape).astype(np.float32) for blob, shape in shapes.items()}
    return net.Proto(), fed


def _plain(array: Any) -> list[Any]:
    return [str(array.dtype), list(array.shape), array.tobytes().hex()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
