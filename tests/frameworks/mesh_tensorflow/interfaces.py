"""Graphs with the methods of Mesh-TensorFlow's GraphInterface, from records and from graph files."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lowtide.engine.graph import Lifetime
from lowtide.mesh_tensorflow import MeshTensorflowModel
from tests.engine.schedule.cases import case

DATA = Path(__file__).parents[2] / "data"


class Listed:
    """A GraphInterface over lists: ops as (name, inputs, outputs), and bytes by tensor, in total and on one device."""

    def __init__(
        self,
        ops: Sequence[tuple[str, Sequence[str], Sequence[str]]],
        sizes: Mapping[str, Any],
        final: Sequence[str] = (),
        on_device: Mapping[str, int] | None = None,
    ) -> None:
        self.ops = {name: (list(inputs), list(outputs)) for name, inputs, outputs in ops}
        self.sizes, self.final, self.on_device = sizes, set(final), on_device

    def get_all_operation_names(self) -> Any:
        yield from self.ops

    def get_operation_input_names(self, operation_name: str) -> Any:
        yield from self.ops[operation_name][0]

    def get_operation_output_names(self, operation_name: str) -> Any:
        yield from self.ops[operation_name][1]

    def get_tensor_size(self, tensor_name: str, partial_layout: Any = None, mesh_dimension_to_size: Any = None) -> Any:
        if partial_layout:
            assert self.on_device is not None
            assert set(partial_layout.values()) == set(mesh_dimension_to_size)
            return self.on_device[tensor_name]
        return self.sizes[tensor_name]

    def is_tensor_final(self, tensor_name: str) -> bool:
        return tensor_name in self.final

    def contents(self, schedule: Sequence[int]) -> list[frozenset[str]]:
        """Return the live tensors during each operation, by brute force."""
        names = list(self.ops)
        return [
            frozenset(
                tensor
                for place, op in enumerate(schedule[: step + 1])
                for tensor in self.ops[names[op]][1]
                if place == step
                or tensor in self.final
                or any(tensor in self.ops[names[later]][0] for later in schedule[step:])
            )
            for step in range(len(schedule))
        ]


def of_case(name: str) -> Listed:
    """Return a case of Mesh-TensorFlow's own tests as an interface."""
    graph = case(name)
    names, ops = graph.buffer_names, list(graph.ops())
    rows = [(op.name, [names[b] for b in op.reads], [names[b] for b in op.writes]) for op in ops]
    final = [names[b] for b, lifetime in enumerate(graph.lifetimes.tolist()) if lifetime == Lifetime.OUTPUT]
    return Listed(rows, dict(zip(names, graph.sizes.tolist(), strict=True)), final)


def records(name: str) -> list[dict[str, Any]]:
    """Return the records of a file made with Mesh-TensorFlow."""
    return json.loads(gzip.decompress((DATA / name).read_bytes()))


def of_order_record(record: dict[str, Any]) -> Listed:
    """Return a random graph of tests/oracles/record_mesh_tensorflow.py."""
    rows = [(name, [f"t{t}" for t in reads], [f"t{t}" for t in writes]) for name, reads, writes in record["ops"]]
    sizes = {f"t{tensor}": size for tensor, size in enumerate(record["sizes"])}
    return Listed(rows, sizes, [f"t{tensor}" for tensor in record["final"]])


def of_model_record(record: dict[str, Any]) -> Listed:
    """Return a model of tests/oracles/record_mesh_models.py."""
    names = [name for name, _, _ in record["tensors"]]
    rows = [(op, [names[t] for t in reads], [names[t] for t in writes]) for op, reads, writes in record["ops"]]
    sizes = {name: size for name, size, _ in record["tensors"]}
    on_device = {name: size for name, _, size in record["tensors"]}
    return Listed(rows, sizes, [names[tensor] for tensor in record["final"]], on_device)


def tensor_sizes(model: MeshTensorflowModel) -> dict[str, int]:
    """Return the bytes of every tensor by name, per device if there is a layout."""
    return dict(zip(model.graph.buffer_names, model.graph.sizes.tolist(), strict=True))
