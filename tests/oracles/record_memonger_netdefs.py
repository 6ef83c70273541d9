r"""Record what Caffe2 memonger itself makes of random NetDefs, as files: binary, text, and what each function returns.

memonger.py was last shipped inside the torch 1.11.0 wheel; `record_memonger_sharing.py` says how to get it. Then

    memonger/bin/python tests/oracles/record_memonger_netdefs.py . tests/data/share/memonger_netdefs.json.gz

Every record holds a net in binary format (the first hundred in text, too), sizes or null, blobs that never share (its
externals are among them), and memonger's answers.
"""

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.oracles.record_memonger_sharing import import_memonger

MOST_OPS_SEARCHED = 9


def random_net(seed: int, pb2: Any) -> Any:
    """Return the net of a seed: each blob is written once, or in place by its last reader."""
    rng = random.Random(seed)
    external = [f"in{k}" for k in range(rng.randint(1, 3))]
    available, overwritten = list(external), set[str]()
    net = pb2.NetDef(name=f"net {seed}", external_input=external)
    if rng.random() < 0.3:
        net.type, net.num_workers = "dag", 4
    for place in range(rng.randint(1, 14)):
        usable = [blob for blob in available[-6:] if blob not in overwritten] or external
        inputs = rng.choices(usable, k=rng.choice((0, 1, 1, 2, 2, 3)))
        op = net.op.add(type=rng.choice(("FC", "Relu", "Sum")), name=str(place))
        op.input.extend(inputs)
        own = [blob for blob in dict.fromkeys(inputs) if blob not in external]
        if len(set(inputs)) == 1 and own and rng.random() < 0.2:
            op.output.extend(own)
        else:
            op.output.extend(f"b{place}.{k}" for k in range(rng.choice((1, 1, 1, 2))))
            available.extend(op.output)
        decorate(op, rng)
    net.external_output.extend(blob for blob in available if blob not in external and rng.random() < 0.1)
    return net


def decorate(op: Any, rng: random.Random) -> None:
    """Give an op settings of every kind, now and then."""
    if rng.random() < 0.3:
        op.arg.add(name="axis", i=rng.choice((-1, 0, 7, 2**62)))
        op.arg.add(name="scale", f=rng.choice((0.1, 1.5, -3e30, float("inf"))))
    if rng.random() < 0.1:
        op.arg.add(name="order", s=b'NC"HW\n\\\xff')
        op.arg.add(name="list", floats=[0.25, 1e-7], ints=[1, -2], strings=[b"a", b"\0"])
    if rng.random() < 0.1:
        op.arg.add(name="t").t.CopyFrom(type(op.arg.add(name="u").t)(dims=[2], data_type=10, int64_data=[3, -4]))
    if rng.random() < 0.1:
        op.engine, op.is_gradient_op = "CUDNN", True


def answers(net: Any, sizes: dict[str, int] | None, never_share: list[str], memonger: Any, pb2: Any) -> dict[str, Any]:
    """Return what memonger says about a net."""
    result: dict[str, Any] = {}
    for order in ("topological_sort_traversal", "topological_sort_traversal_longest_path"):
        for algorithm in memonger.AssignmentAlgorithm:
            if algorithm.name != "GREEDY" and len(net.op) > MOST_OPS_SEARCHED:
                continue
            try:
                found = memonger.optimize_interference(
                    net, set(never_share), getattr(memonger, order), sizes, algorithm
                )
            except (AssertionError, IndexError, ValueError):  # no tree of paths, nothing to share, or nothing read
                continue
            result[f"{order} {algorithm.name}"] = {
                "order": [int(op.name) for op in found.net.op],
                "ranges": ranges_in([net.op[int(op.name)] for op in found.net.op], memonger),
                "slots": [[[name, *blob] for name, blob in slot] for slot in found.assignments],
                "renames": found.blob_assignments,
                "bytes": memonger.get_memory_usage(found.assignments),
                "net": encoded(found.net),
            }
    result["released"] = encoded(memonger.release_blobs_when_used(net, set(never_share)))
    shapes = {blob: [size, 3] for blob, size in (sizes or {}).items()}
    copy = pb2.NetDef.FromString(net.SerializeToString())
    result["usage"] = memonger.estimate_memory_usage([copy], shapes, dict.fromkeys(shapes, 1), pb2.DeviceOption())
    return result


def ranges_in(ops: list[Any], memonger: Any) -> list[list[Any]]:
    """Return memonger's ranges for ops in an order."""
    return [[name, *blob] for name, blob in memonger.compute_ranges(ops).items()]


def encoded(net: Any) -> str:
    """Return a net's binary format as text."""
    return net.SerializeToString().hex()


def main(folder: str, records_path: str) -> None:
    """Write 500 records."""
    memonger, pb2 = import_memonger(folder)
    records: list[dict[str, Any]] = []
    for seed in range(500):
        net = random_net(seed, pb2)
        rng = random.Random(-1 - seed)
        blobs = list(dict.fromkeys(blob for op in net.op for blob in (*op.input, *op.output)))
        sizes = {blob: rng.choice((1, 2, 3, 8, 10, 50)) for blob in blobs} if rng.random() < 0.67 else None
        static = [blob for blob in blobs if rng.random() < 0.1]
        never_share = list(dict.fromkeys([*net.external_input, *net.external_output, *static]))
        record = {
            "net": encoded(net),
            "text": str(net) if seed < 100 else None,
            "sizes": sizes,
            "never_share": never_share,
        }
        records.append(record | {"answers": answers(net, sizes, never_share, memonger, pb2)})
    lines = ",\n".join(json.dumps(record, separators=(",", ":"), default=int) for record in records)
    Path(records_path).write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
