r"""Train LSTMs with recurrent ops in Caffe2 itself, as they stand and as lowtide changed them; record what comes out.

Three steps, in the two environments of record_caffe2_runs.py, in turn:

    caffe2/bin/python tests/oracles/record_caffe2_recurrent.py build FOLDER
    python -m tests.oracles.record_caffe2_recurrent change FOLDER
    caffe2/bin/python tests/oracles/record_caffe2_recurrent.py run FOLDER tests/data/caffe2_recurrent.json.gz

Running stops where a changed net gives other bits than the original. A record holds a net, what was fed, the loss and
all gradients, and how the net was changed.
"""

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

STEPS, BATCH, WIDTH = 4, 3, 5
NETS: dict[str, dict[str, Any]] = {
    "one layer": {"layers": [6]},
    "two layers": {"layers": [6, 4]},
    "last state": {"layers": [6], "last": True},
    "dropped states": {"layers": [6, 3], "drop_states": True, "forget_bias": 1.0},
    "both outputs": {"layers": [4], "both": True},
}


def build(folder: Path) -> None:
    """Write the nets and what to feed them; under Caffe2."""
    for name, settings in NETS.items():
        net, losses = _trained(**settings)
        rng = np.random.default_rng(len(name))
        inputs: dict[str, Any] = {
            "input": rng.standard_normal((STEPS, BATCH, WIDTH)).astype(np.float32),
            "lengths": np.array([4, 2, 3], np.int32),
            "labels": rng.integers(0, 3, BATCH if settings.get("last") else STEPS * BATCH).astype(np.int32),
        }
        for blob in net.external_input:
            if blob not in inputs:
                inputs[blob] = (rng.standard_normal(_shape(blob, settings["layers"])) / 2).astype(np.float32)
        produced = {blob for op in net.op for blob in op.output}
        gradients = sorted(blob for blob in produced if blob.removesuffix("_grad") in inputs and blob != "labels")
        net.external_output.extend([*losses, *gradients])
        stem = name.replace(" ", "_")
        np.savez(folder / f"{stem}.npz", **inputs)
        (folder / f"{stem}.net.pb").write_bytes(net.SerializeToString())


def _shape(blob: str, layers: list[int]) -> tuple[int, ...]:
    if blob.startswith(("hidden", "cell")):
        return 1, BATCH, layers[int(blob[-1])]
    layer = int(blob[len("lstm/layer_")]) if "layer_" in blob else 0
    rows = WIDTH if blob.startswith("low") else 4 * layers[layer]
    if blob.endswith("_b"):
        return (rows,)
    if "gates_t" in blob:
        return rows, layers[layer]
    return rows, layers[layer - 1] if layer else WIDTH


def _trained(
    layers: list[int], *, last: bool = False, both: bool = False, drop_states: bool = False, forget_bias: float = 0.0
) -> tuple[Any, list[str]]:
    helper: Any = importlib.import_module("caffe2.python.model_helper")
    cells: Any = importlib.import_module("caffe2.python.rnn_cell")
    brew: Any = importlib.import_module("caffe2.python.brew")
    model = helper.ModelHelper(name="lstm")
    model.net.AddExternalInputs("input", "lengths", "labels")
    begins = [
        model.net.AddExternalInput(f"{kind}_{layer}") for layer in range(len(layers)) for kind in ("hidden", "cell")
    ]
    sequence = model.net.Tanh(brew.fc(model, model.net.Relu("input", "seq"), "low", WIDTH, WIDTH, axis=2), "seq2")
    settings: dict[str, Any] = {"forget_bias": forget_bias, "drop_states": drop_states, "return_last_layer_only": True}
    settings["outputs_with_grads"] = (0, 3) if both else (1,) if last else (0,)
    found = cells.LSTM(model, sequence, "lengths", begins, WIDTH, layers, "lstm", **settings)
    losses = [_loss(model, found[1] if last else found[0], "labels", (BATCH if last else STEPS * BATCH, layers[-1]))]
    if both:
        losses.append(str(model.net.SumElements(found[3], "loss_of_cell")))
    model.AddGradientOperators(losses)
    return model.net.Proto(), losses


def _loss(model: Any, blob: Any, labels: str, shape: tuple[int, int]) -> str:
    flat, _ = model.net.Reshape(blob, ["flat", "old_shape"], shape=shape)
    _, loss = model.net.SoftmaxWithLoss([flat, labels], ["softmax", "loss"])
    return str(loss)


def change(folder: Path) -> None:
    """Write what lowtide makes of the nets; under lowtide."""
    import lowtide
    from lowtide.caffe2 import Caffe2Model, memonger, plan, write_net
    from lowtide.frameworks.caffe2.nets.load import read_net

    for path in sorted(folder.glob("*.net.pb")):
        net = read_net(path.read_bytes(), path.name)
        static = [*net.external_input, *net.external_output]
        losses = [blob for blob in net.external_output if blob.startswith("loss")]
        kept = [blob for blob in net.external_output if blob not in losses]
        fed = np.load(path.with_name(path.name.replace(".net.pb", ".npz")))
        shapes = {blob: (str(fed[blob].dtype), list(fed[blob].shape)) for blob in fed.files}
        model = Caffe2Model(net, shapes=shapes)
        changed = {
            "applied": model.apply(lowtide.minimize(model.graph, effort="fast").plan),
            "planned": plan(net, shapes).net,
            "gradients": memonger.share_grad_blobs(net, losses, kept, ""),
            "activations": memonger.share_grad_blobs(net, losses, kept, "", share_activations=True),
            "fast": memonger.optimize_inference_fast(net, []),
            "interference": memonger.optimize_interference(net, static).net,
            "released": memonger.release_blobs_when_used(net, set()),
        }
        for way, made in changed.items():
            path.with_name(path.name.replace(".net.pb", f".{way}.pb")).write_bytes(write_net(made, "net.pb"))


def run(folder: Path, records_path: Path) -> None:
    """Run everything and write the records; under Caffe2."""
    net_def: Any = importlib.import_module("caffe2.proto.caffe2_pb2").NetDef
    workspace: Any = importlib.import_module("caffe2.python.workspace")
    records: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.net.pb")):
        stem = path.name.split(".")[0]
        inputs = np.load(folder / f"{stem}.npz")
        results: dict[str, dict[str, Any]] = {}
        ways = sorted(made.suffixes[-2][1:] for made in folder.glob(f"{stem}.*.pb"))
        for way in ways:
            workspace.ResetWorkspace()
            for blob in inputs.files:
                workspace.FeedBlob(blob, inputs[blob])
            net = net_def.FromString((folder / f"{stem}.{way}.pb").read_bytes())
            workspace.RunNetOnce(net)
            results[way] = {blob: _plain(workspace.FetchBlob(blob)) for blob in net.external_output}
        wrong = [way for way in ways if results[way] != results["net"]]
        if wrong:
            sys.exit(f"{stem}: other bits than the original under {', '.join(wrong)}")
        fed = {blob: _plain(inputs[blob]) for blob in inputs.files}
        changed = [way for way in ways if way != "net"]
        content = path.read_bytes().hex()
        records.append({"name": stem, "net": content, "inputs": fed, "results": results["net"], "changed": changed})
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    records_path.write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


def _plain(array: Any) -> list[Any]:
    return [str(array.dtype), list(array.shape), array.tobytes().hex()]


if __name__ == "__main__":
    step, *paths = sys.argv[1:]
    {"build": build, "change": change, "run": run}[step](*map(Path, paths))
