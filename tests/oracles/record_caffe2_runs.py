r"""Run nets in Caffe2 itself, as they stand and as lowtide changed them, and record what it computes.

Wheels of torch up to 1.9.1 hold a whole Caffe2. With Python 3.9, and lowtide in an environment of its own:

    python3.9 -m venv caffe2
    caffe2/bin/pip install torch==1.9.1 "numpy<1.24" protobuf==3.20.3 future six
    python -m tests.oracles.record_caffe2_runs export FOLDER
    caffe2/bin/python tests/oracles/record_caffe2_runs.py run FOLDER tests/data/caffe2_runs.json.gz

Running stops where a changed net gives other bits than the original, so that a record shows that none did. A record
holds a net, what was fed, the shapes of all blobs, what came out, and how the net was changed.
"""

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np


def export(folder: Path) -> None:
    """Write nets, what to feed them, and what lowtide makes of them; under lowtide."""
    from tests.frameworks.caffe2.benchmark_nets import load_nets
    from tests.oracles.random_netdefs import random_netdef

    nets = load_nets()
    built = [
        nets.conv_chain(4, 2, 8, training=True),
        nets.residual(2, 2, 8, training=True),
        nets.inception(1, 2, 8, training=True),
        nets.unrolled_lstm(3, 4, 2, training=True),
        nets.two_losses(3, 8, 4),
        nets.wide_dag(6, 4, 8),
    ]
    for made in built:
        _export(folder, made.net.name.replace(" ", "_"), made.net, made.shapes, made.parameters)
    for seed in range(200):
        made = random_netdef(random.Random(seed), 14)
        _export(folder, f"random_{seed}", made.net, made.shapes, [])


def _export(folder: Path, name: str, net: Any, shapes: dict[str, Any], parameters: list[str]) -> None:
    import lowtide
    from lowtide.caffe2 import Caffe2Model, memonger, plan, write_net

    model = Caffe2Model(net, shapes=shapes, parameters=parameters)
    static = [*net.external_input, *net.external_output]
    losses = [blob for blob in net.external_output if blob.startswith("loss")]
    longest, search = memonger.topological_sort_traversal_longest_path, memonger.AssignmentAlgorithm.DYNAMIC_PROGRAMMING
    changed = {
        "applied": model.apply(lowtide.minimize(model.graph, effort="fast").plan),
        "planned": plan(net, shapes, parameters=parameters).net,
        "fast": memonger.optimize_inference_fast(net, []),
        "interference": memonger.optimize_interference(net, static).net,
        "searched": memonger.optimize_interference(net, static, longest, model.blob_sizes(), search).net,
        "released": memonger.release_blobs_when_used(net, set()),
    }
    if losses:
        gradients = [blob for blob in net.external_output if blob not in losses]
        changed["gradients"] = memonger.share_grad_blobs(net, losses, gradients, "", share_activations=True)
    else:
        changed["dag"] = memonger.optimize_inference_for_dag(net, net.external_input[:1])
    rng = np.random.default_rng(0)
    inputs: dict[str, Any] = {}
    for blob, value in shapes.items():
        kind, shape = value if isinstance(value[0], str) else ("float32", value)
        made = rng.standard_normal(shape) / 2 if kind == "float32" else rng.integers(0, 3, shape)
        inputs[blob] = made.astype(kind)
    np.savez(folder / f"{name}.npz", **inputs)
    for key, made in {"net": net, **changed}.items():
        (folder / f"{name}.{key}.pb").write_bytes(write_net(made, "net.pb"))


def run(folder: Path, records_path: Path) -> None:
    """Run what was exported and write the records; under Caffe2."""
    from caffe2.proto import caffe2_pb2  # pyright: ignore
    from caffe2.python import workspace  # pyright: ignore

    def results_of(path: Path, inputs: Any) -> tuple[Any, dict[str, Any]]:
        workspace.ResetWorkspace()
        for blob in inputs.files:
            workspace.FeedBlob(blob, inputs[blob])
        net = caffe2_pb2.NetDef.FromString(path.read_bytes())
        workspace.RunNetOnce(net)
        return net, {blob: workspace.FetchBlob(blob) for blob in net.external_output}

    records: list[dict[str, Any]] = []
    for fed in sorted(folder.glob("*.npz")):
        inputs = np.load(fed)
        net, results = results_of(fed.with_name(f"{fed.stem}.net.pb"), inputs)
        shapes = {blob: list(workspace.FetchBlob(blob).shape) for op in net.op for blob in op.output}
        changed = [path for path in sorted(folder.glob(f"{fed.stem}.*.pb")) if not path.name.endswith(".net.pb")]
        for path in changed:
            _, found = results_of(path, inputs)
            if any(found[blob].tobytes() != results[blob].tobytes() for blob in results):
                sys.exit(f"{path}: other bits than the original")
        records.append(
            {
                "name": fed.stem,
                "net": net.SerializeToString().hex(),
                "inputs": {blob: _plain(inputs[blob]) for blob in inputs.files},
                "shapes": shapes,
                "results": {blob: _plain(array) for blob, array in results.items()},
                "changed": [path.suffixes[-2][1:] for path in changed],
            }
        )
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    records_path.write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


def _plain(array: Any) -> list[Any]:
    return [str(array.dtype), list(array.shape), array.tobytes().hex()]


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(Path(sys.argv[2]))
    else:
        run(Path(sys.argv[2]), Path(sys.argv[3]))
