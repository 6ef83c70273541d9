"""Record what Mesh-TensorFlow's own list scheduler does on random graphs.

It needs an environment of its own (TensorFlow would dwarf the rest of the test requirements):

    python3.11 -m venv mtf
    mtf/bin/pip install mesh-tensorflow==0.1.21 tensorflow-cpu==2.21 six ortools
    mtf/bin/python tests/oracles/record_mesh_tensorflow.py tests/data/mesh_tensorflow_orders.json.gz

Every record holds whether the original's defects can matter, tensor sizes, the final tensors, ops as
[name, input tensors, output tensors], and the order of LIST.
"""

import gzip
import json
import random
import sys
import types
from pathlib import Path
from typing import Any

SIZES = (0, 1, 1, 2, 2, 3, 5, 8, 13)


def random_record(seed: int, *, defects_matter: bool) -> dict[str, Any]:
    """Return the graph of a seed. Every op has an output: the original fails on the first op that has none.

    Where its defects matter there are final tensors and ops that read a tensor twice.
    """
    rng = random.Random(seed)
    n_ops = rng.randint(2, 30)
    names = [f"op{k}" for k in range(n_ops)]
    rng.shuffle(names)
    sizes: list[int] = []
    ops: list[tuple[str, list[int], list[int]]] = []
    for name in names:
        recent = range(max(0, len(sizes) - 12), len(sizes))
        inputs = rng.choices(recent, k=rng.choice((0, 1, 1, 2, 2, 3))) if recent else []
        outputs = [len(sizes) + k for k in range(rng.choice((1, 1, 1, 2, 3)))]
        sizes += [rng.choice(SIZES) for _ in outputs]
        ops.append((name, inputs if defects_matter else list(dict.fromkeys(inputs)), outputs))
    final = [tensor for tensor in range(len(sizes)) if defects_matter and rng.random() < 0.2]
    return {"defects_matter": defects_matter, "sizes": sizes, "final": final, "ops": ops}


class RecordedGraph:
    """A record with the methods of mesh_tensorflow.auto_mtf.graph_interface.GraphInterface that LIST calls."""

    def __init__(self, record: dict[str, Any]) -> None:
        self._record = record
        self._ops = {name: (inputs, outputs) for name, inputs, outputs in record["ops"]}

    def get_all_operation_names(self) -> list[str]:
        return list(self._ops)

    def get_operation_input_names(self, name: str) -> list[int]:
        return self._ops[name][0]

    def get_operation_output_names(self, name: str) -> list[int]:
        return self._ops[name][1]

    def is_tensor_final(self, tensor: int) -> bool:
        return tensor in self._record["final"]

    def get_tensor_size(self, tensor: int) -> int:
        return self._record["sizes"][tensor]


def import_scheduler() -> Any:
    """Import the scheduler; Mesh-TensorFlow expects names that TensorFlow has dropped since."""
    import tensorflow  # pyright: ignore[reportMissingImports]
    import tensorflow.compat.v1 as tf  # pyright: ignore[reportMissingImports]
    from tensorflow.python.framework import ops  # pyright: ignore[reportMissingImports]

    class Estimator(types.ModuleType):
        def __getattr__(self, name: str) -> type:
            return type(name, (), {})

    tf.estimator = Estimator("estimator")
    ops.register_tensor_conversion_function = tensorflow.register_tensor_conversion_function
    ops.register_dense_tensor_like_type = lambda *_: None
    from mesh_tensorflow.auto_mtf import scheduler  # pyright: ignore[reportMissingImports]

    return scheduler


def main(path: Path) -> None:
    """Write 150 records of either kind; equal runs write equal files."""
    scheduler = import_scheduler()
    records = [random_record(seed, defects_matter=seed >= 150) for seed in range(300)]
    for record in records:
        record["order"] = list(scheduler.minimize_peak_memory(RecordedGraph(record), "LIST"))
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    path.write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
