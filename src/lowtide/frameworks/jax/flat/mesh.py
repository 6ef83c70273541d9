"""Programs over a mesh of devices: the program of one device, and a way to run another one in its place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import ClosedJaxpr

from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.flat.run import run_program
from lowtide.frameworks.jax.internals import shard_map

Flat = Callable[..., Sequence[Any]]
"""A function of the leaves of the arguments that returns the leaves of the results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshProgram:
    """A program whose work is one `shard_map`."""

    outer: FlatProgram
    position: int
    """Of the equation in the outer program."""
    inner: FlatProgram
    """What every device runs on its shards."""

    def around(self, flat: Flat) -> Flat:
        """Return the outer program with a function of one device's shards in the place of the inner program."""
        params: Any = self.outer.equations[self.position].origin.params

        def one_device(*shards: Any) -> tuple[Any, ...]:
            return tuple(flat(*shards))

        mapped = shard_map(
            one_device,
            mesh=params["mesh"],
            in_specs=tuple(params["in_specs"]),
            out_specs=tuple(params["out_specs"]),
            axis_names=set(params["newly_manual_axes"]),
            check_vma=params["check_vma"],
        )
        return lambda *leaves: run_program(self.outer, leaves, {self.position: mapped})


def mesh_program(program: FlatProgram) -> MeshProgram | None:
    """Return a program by the one `shard_map` that it runs; None where it runs none, or several."""
    positions = [place for place, equation in enumerate(program.equations) if equation.kind == "shard_map"]
    if len(positions) != 1:
        return None
    body = program.equations[positions[0]].origin.params["jaxpr"]
    closed = body if isinstance(body, ClosedJaxpr) else ClosedJaxpr(body, ())
    return MeshProgram(outer=program, position=positions[0], inner=flatten(closed, f"{program.name} on one device"))
