r"""Record what Caffe2 memonger itself makes of random nets: slots, shared nets, frees, equality.

memonger.py was last shipped inside the torch 1.11.0 wheel; its Python part needs networkx, future and protobuf:

    python3.11 -m venv memonger
    memonger/bin/pip install networkx future protobuf==3.20.3 six
    memonger/bin/pip download torch==1.11.0 --no-deps --only-binary=:all: \
        --python-version 39 --platform manylinux1_x86_64
    unzip torch-1.11.0-*.whl caffe2/python/memonger.py caffe2/proto/caffe2_pb2.py
    memonger/bin/python tests/oracles/record_memonger_sharing.py . tests/data/share/memonger_sharing.json.gz

Every record holds a net (ops as [kind, inputs, outputs]), sizes or null, blobs that never share, and memonger's
answers. A blob is written once, or again in place by a reader; nothing is external, since memonger does not look.
"""

import gzip
import importlib
import json
import logging
import random
import sys
import types
from pathlib import Path
from typing import Any


def random_record(seed: int) -> dict[str, Any]:
    """Return the net of a seed, with sizes for two of three."""
    rng = random.Random(seed)
    available = [f"in{k}" for k in range(rng.randint(0, 3))]
    produced: list[str] = []
    ops: list[tuple[str, list[str], list[str]]] = []
    for op in range(rng.randint(1, 14)):
        inputs = rng.choices(available[-6:], k=rng.choice((0, 1, 1, 2, 2, 3))) if available else []
        in_place = [blob for blob in dict.fromkeys(inputs) if blob in produced and rng.random() < 0.15]
        fresh = [f"b{op}.{k}" for k in range(rng.choice((1, 1, 1, 2)) if not in_place else 0)]
        ops.append((rng.choice(("FC", "Relu", "Sum")), inputs, in_place + fresh))
        available += fresh
        produced += fresh
        if produced and rng.random() < 0.05:
            ops.append(("Alias", [rng.choice(produced)], [f"alias{op}"]))
    blobs = list(dict.fromkeys(blob for _, inputs, outputs in ops for blob in (*inputs, *outputs)))
    sizes = {blob: rng.choice((1, 2, 3, 8, 10, 50)) for blob in blobs} if rng.random() < 0.67 else None
    merged = {blob: rng.choice(blobs) for blob in blobs if rng.random() < 0.2}
    return {
        "ops": ops,
        "sizes": sizes,
        "never_share": [blob for blob in blobs if rng.random() < 0.15],
        "outputs": [blob for blob in produced if rng.random() < 0.1],
        "merged": merged,
    }


def import_memonger(folder: str) -> tuple[Any, Any]:
    """Import memonger.py with its protocol buffers; of Caffe2's core it needs one function, of its C++ part nothing."""
    sys.path.insert(0, folder)
    for name in ("caffe2", "caffe2.python", "caffe2.proto"):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name])["__path__"] = [str(Path(folder, *name.split(".")))]
    pb2 = importlib.import_module("caffe2.proto.caffe2_pb2")
    vars(sys.modules["caffe2.proto"])["caffe2_pb2"] = pb2
    core = types.ModuleType("caffe2.python.core")

    def create_operator(kind: str, inputs: list[str], outputs: list[str]) -> Any:
        return pb2.OperatorDef(type=kind, input=inputs, output=outputs)

    vars(core)["CreateOperator"] = create_operator
    for name, module in {"core": core, "workspace": None, "_import_c_extension": None}.items():
        made = module or types.ModuleType(f"caffe2.python.{name}")
        sys.modules[f"caffe2.python.{name}"] = made
        vars(sys.modules["caffe2.python"])[name] = made
    memonger = importlib.import_module("caffe2.python.memonger")
    memonger.log.setLevel(logging.ERROR)
    return memonger, pb2


def net_of(record: dict[str, Any], pb2: Any) -> Any:
    """Return a record's net as memonger takes it; every op has its place as its name."""
    ops = [
        pb2.OperatorDef(type=kind, input=inputs, output=outputs, name=str(place))
        for place, (kind, inputs, outputs) in enumerate(record["ops"])
    ]
    return pb2.NetDef(op=ops, external_output=record["outputs"])


def plain(net: Any) -> list[tuple[str, list[str], list[str]]]:
    """Return a net as a record holds it."""
    return [(op.type, list(op.input), list(op.output)) for op in net.op]


def answers(record: dict[str, Any], memonger: Any, pb2: Any) -> dict[str, Any]:
    """Return what memonger says about a net."""
    result: dict[str, Any] = {}
    orders = {
        "topological": memonger.topological_sort_traversal,
        "longest-path": memonger.topological_sort_traversal_longest_path,
    }
    for order, function in orders.items():
        for algorithm in memonger.AssignmentAlgorithm:
            if algorithm.name != "GREEDY" and len(record["ops"]) > 9:
                continue
            try:
                found = memonger.optimize_interference(
                    net_of(record, pb2), set(record["never_share"]), function, record["sizes"], algorithm
                )
            except (AssertionError, ValueError):  # its longest paths made no tree, or nothing is read after op 0
                continue
            result[f"{order} {algorithm.name.lower()}"] = {
                "order": [int(op.name) for op in found.net.op],
                "ops": plain(found.net),
                "slots": [[[name, *blob] for name, blob in slot] for slot in found.assignments],
            }
    net = net_of(record, pb2)
    result["released"] = plain(memonger.release_blobs_when_used(net, set(record["never_share"])))
    other = net_of(record, pb2)
    memonger.apply_assignments(other, record["merged"])
    result["equal"] = memonger.verify_graph_equality(net, other)
    result["same_in_place"] = memonger.verify_inplace_blobs(net, other)
    return result


def main(folder: str, records_path: str) -> None:
    """Write 300 records."""
    memonger, pb2 = import_memonger(folder)
    sys.stdout = sys.stderr
    records = [random_record(seed) for seed in range(300)]
    lines = ",\n".join(
        json.dumps(record | {"answers": answers(record, memonger, pb2)}, separators=(",", ":")) for record in records
    )
    Path(records_path).write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
