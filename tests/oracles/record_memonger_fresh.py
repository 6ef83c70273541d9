r"""Record how memonger's C++ part lets blobs share in a thousand more nets, and in nets with the gradients of Caffe2.

In the two environments of record_caffe2_runs.py, networkx in that of Caffe2, in turn:

    python -m tests.oracles.record_memonger_fresh export NETS.json
    caffe2/bin/python tests/oracles/record_memonger_fresh.py run NETS.json tests/data/memonger_fresh.json.gz

A record holds per way the slots with several blobs, or null where memonger fails. Random nets are known by their seeds;
nets with gradients are in it, with the shapes that their blobs have when Caffe2 runs them on `inputs_of`, and of some
nets with what it computes.
"""

import gzip
import importlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

SEEDS = range(1000, 2000)
TRAINING_NETS = 200
TRAINING_NETS_KEPT = 50
BATCH, WIDTH = 2, 4


def ops_of(seed: int) -> int:
    """Return how many ops the random net of a seed has."""
    return 8 + seed % 33


def export(path: Path) -> None:
    """Write the random nets; under lowtide."""
    from lowtide.caffe2 import write_net
    from tests.oracles.random_netdefs import random_netdef

    nets = {seed: random_netdef(random.Random(seed), ops_of(seed)).net for seed in SEEDS}
    path.write_text(json.dumps({seed: write_net(net, "net.pb").hex() for seed, net in nets.items()}))


class Wrapped:
    """A NetDef as memonger takes it."""

    def __init__(self, net: Any) -> None:
        self._net = net

    def Proto(self) -> Any:  # noqa: N802
        """Return the NetDef."""
        return self._net


def run(nets: Path, records_path: Path) -> None:
    """Let memonger share and write the records; under Caffe2."""
    net_def: Any = importlib.import_module("caffe2.proto.caffe2_pb2").NetDef
    memonger: Any = importlib.import_module("caffe2.python.memonger")
    records: list[dict[str, Any]] = []
    for seed, content in json.loads(nets.read_text()).items():
        net: Any = net_def.FromString(bytes.fromhex(content))
        simple: Any = net_def.FromString(bytes.fromhex(content))
        simple.type = "simple"
        static = [*net.external_input, *net.external_output]
        ways = {
            "fast": _slots(net, memonger.optimize_inference_fast, simple, static),
            "dag": _slots(net, memonger.optimize_inference_for_dag, Wrapped(net), net.external_input),
            "dag from one": _slots(net, memonger.optimize_inference_for_dag, Wrapped(net), net.external_input[:1]),
        }
        records.append({"seed": int(seed), **ways})
    for seed in range(TRAINING_NETS):
        net, outer = _training_net(random.Random(seed), importlib.import_module("caffe2.python.model_helper"))
        shapes, results = _run(net, outer)
        parameters = [blob for blob in net.external_output if blob != "loss"]
        ways = {
            f"gradients{' activations' * activations}{' sizes' * sized}": _slots(
                net,
                memonger.share_grad_blobs,
                *(Wrapped(net), ["loss"], set(parameters), "", None, activations, shapes if sized else {}),
            )
            for activations in (False, True)
            for sized in (False, True)
        }
        records.append({"net": net.SerializeToString().hex(), "shapes": shapes, **ways})
        if seed < TRAINING_NETS_KEPT:
            records[-1]["results"] = results
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    records_path.write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


def inputs_of(net: Any, shapes: Any) -> dict[str, Any]:
    """Return what a net with gradients is fed."""
    rng = np.random.default_rng(len(net.op))
    return {blob: rng.standard_normal(shapes[blob]).astype(np.float32) for blob in net.external_input}


def _run(net: Any, outer: dict[str, list[int]]) -> Any:
    """Return the shapes of all blobs, and the loss and the gradients."""
    workspace: Any = importlib.import_module("caffe2.python.workspace")
    workspace.ResetWorkspace()
    for blob, array in inputs_of(net, outer).items():
        workspace.FeedBlob(blob, array)
    workspace.RunNetOnce(net)
    blobs = dict.fromkeys(blob for op in net.op for blob in (*op.input, *op.output))
    shapes = {blob: list(workspace.FetchBlob(blob).shape) for blob in blobs}
    return outer | shapes, {blob: workspace.FetchBlob(blob).tobytes().hex() for blob in net.external_output}


def _slots(net: Any, work: Any, *arguments: Any) -> Any:
    try:
        made = work(*arguments)
    except (AssertionError, RuntimeError):  # it finds its own net to be wrong, or stops in the middle
        return None
    blobs: dict[str, dict[str, None]] = {}
    for former, latter in zip(net.op, made.op):  # noqa: B905 - Python 3.9
        for blob, name in zip([*former.input, *former.output], [*latter.input, *latter.output]):  # noqa: B905
            blobs.setdefault(name, {})[blob] = None
    return [list(slot) for slot in blobs.values() if len(slot) > 1]


def _training_net(rng: random.Random, helpers: Any) -> Any:
    """Return a net of layers with branches and its gradients, and the shapes of what is fed."""
    model = helpers.ModelHelper(name="training")
    net = model.net
    shapes: dict[str, list[int]] = {"data": [BATCH, WIDTH]}
    net.AddExternalInputs("data")
    made = ["data"]
    for place in range(rng.randint(4, 20)):
        blob, (one, other) = f"b{place}", rng.choices(made[-4:], k=2)
        width = shapes[one][1]
        same = [name for name in made[-6:] if shapes[name][1] == width]
        kind = rng.random()
        if kind < 0.4:
            width = rng.choice((2, 4, 4, 8))
            weights = [f"{blob}_w", f"{blob}_b"]
            net.AddExternalInputs(*weights)
            shapes.update({weights[0]: [width, shapes[one][1]], weights[1]: [width]})
            net.FC([one, *weights], blob)
        elif kind < 0.6:
            getattr(net, rng.choice(("Relu", "Sigmoid", "Tanh")))(one, blob)
        elif kind < 0.85 and len(same) > 1:
            getattr(net, rng.choice(("Sum", "Add", "Mul")))(rng.sample(same, 2), blob)
        elif one != other:
            net.Concat([one, other], [blob, f"{blob}_dims"], axis=1)
            width += shapes[other][1]
        else:
            net.Copy(one, blob)
        shapes[blob] = [BATCH, width]
        made.append(blob)
    parts = [name for name in made[1:] if rng.random() < 0.15]
    losses = []
    for name in dict.fromkeys([*parts, made[-1]]):
        net.SumElements(name, f"{name}_sum")
        losses.append(f"{name}_sum")
    net.Sum(losses, "loss") if len(losses) > 1 else net.Copy(losses[0], "loss")
    model.AddGradientOperators(["loss"])
    proto = net.Proto()
    produced = {blob for op in proto.op for blob in op.output}
    parameters = [f"{blob}_grad" for blob in proto.external_input if blob.endswith(("_w", "_b"))]
    proto.external_output.extend(["loss", *(blob for blob in parameters if blob in produced)])
    return proto, {blob: shapes[blob] for blob in proto.external_input}


if __name__ == "__main__":
    if sys.argv[1] == "export":
        export(Path(sys.argv[2]))
    else:
        run(Path(sys.argv[2]), Path(sys.argv[3]))
