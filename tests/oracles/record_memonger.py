r"""Record the orders of Caffe2 memonger's own topological_sort_traversal_longest_path on random graphs.

memonger.py was last shipped inside the torch 1.11.0 wheel; the function itself needs networkx and future:

    python3.11 -m venv memonger
    memonger/bin/pip install networkx future
    memonger/bin/pip download torch==1.11.0 --no-deps --only-binary=:all: \
        --python-version 39 --platform manylinux1_x86_64
    unzip torch-1.11.0-*.whl caffe2/python/memonger.py
    memonger/bin/python tests/oracles/record_memonger.py caffe2/python/memonger.py tests/data/memonger_orders.json.gz

Every record holds the number of ops, the edges, and the order.
"""

import gzip
import importlib.util
import json
import random
import sys
import types
from pathlib import Path
from typing import Any


def random_record(seed: int) -> dict[str, Any]:
    """Return the graph of a seed: chains of different lengths with links between them, which makes ties rare."""
    rng = random.Random(seed)
    chain_of: list[int] = []
    for chain in range(rng.randint(1, 5)):
        chain_of += [chain] * rng.randint(1, 7)
    rng.shuffle(chain_of)
    n_ops = len(chain_of)
    edges: set[tuple[int, int]] = set()
    for op, chain in enumerate(chain_of):
        before = [other for other in range(op) if chain_of[other] == chain]
        edges |= {(other, op) for other in before[-1:]}
        if before and rng.random() < 0.3:
            edges.add((rng.randrange(op), op))
    return {"n_ops": n_ops, "edges": sorted(edges)}


def tied_record(seed: int) -> dict[str, Any]:
    """Return the graph of a seed: up to 80 ops, each after up to three others, so that paths and heights often tie."""
    rng = random.Random(seed)
    n_ops = rng.randint(1, rng.choice((8, 20, 80)))
    edges: set[tuple[int, int]] = set()
    for op in range(1, n_ops):
        if rng.random() < 0.8:
            first = max(0, op - rng.choice((3, 10, 80)))
            edges |= {(rng.randrange(first, op), op) for _ in range(rng.choice((1, 1, 2, 3)))}
    return {"n_ops": n_ops, "edges": sorted(edges)}


def import_memonger(path: str) -> Any:
    """Import memonger.py on its own; what else it imports is not needed for orders."""
    names = {"caffe2": (), "caffe2.python": ("workspace", "core"), "caffe2.proto": ("caffe2_pb2",)}
    for name, members in (names | {"caffe2.python._import_c_extension": ()}).items():
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(members))
    spec = importlib.util.spec_from_file_location("memonger", path)
    if spec is None or spec.loader is None:
        sys.exit(f"{path}: no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(memonger_path: str, records_path: str) -> None:
    """Write 900 records, 400 of them with ties; those that memonger fails on (its paths made no tree) get no order."""
    import networkx  # pyright: ignore[reportMissingImports]

    memonger = import_memonger(memonger_path)
    records = [random_record(seed) for seed in range(500)] + [tied_record(seed) for seed in range(400)]
    for record in records:
        graph = networkx.DiGraph()
        graph.add_nodes_from(range(record["n_ops"]))
        graph.add_edges_from(record["edges"])
        try:
            record["order"] = memonger.topological_sort_traversal_longest_path(graph)
        except AssertionError:
            record["order"] = None
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    Path(records_path).write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
