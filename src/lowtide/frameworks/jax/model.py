"""A JAX function as lowtide sees it: traced once, planned, carried out, measured."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, cast

import numpy as np
from jax.extend.core import ClosedJaxpr

from lowtide.core.errors import FingerprintError, UnsupportedError, UsageError, one_line
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, StepKind, verify
from lowtide.engine.planning.measured import CompiledMemory, Measurement
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.jax.emit.copies import copies_of
from lowtide.frameworks.jax.emit.emit import run_plan
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.mesh import Flat
from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.flat.traced import of_jaxpr, trace
from lowtide.frameworks.jax.internals import (
    ShapeDtypeStruct,
    has_host_space,
    is_random_key,
    jaxpr_as_fun,
    jit,
    numpy,
    random,
    tree,
)
from lowtide.frameworks.jax.measure.assigned import assigned_bytes
from lowtide.frameworks.jax.measure.compiled import CompiledCandidate, compile_flat
from lowtide.frameworks.jax.measure.kernels import run_kernels
from lowtide.frameworks.jax.measure.resident import added_resident_bytes
from lowtide.frameworks.jax.reading.read import read_program
from lowtide.frameworks.model import Model

_NO_HOST_SPACE = (
    "this device has no host space apart: on the CPU pinned_host is the memory of the device, and XLA drops such copies"
)


class JaxModel(Model):
    """A JAX function and its graph, traced once."""

    def __init__(self, source: Any, dims: Mapping[str, int] | None = None) -> None:
        """Read a tuple (function, example arguments) or a ClosedJaxpr.

        The function may be jitted; what it is given as examples may be arrays or ShapeDtypeStructs, one tuple of
        positional arguments and, if need be, a mapping of keyword arguments. Nothing is allocated or computed.
        Raises UsageError for anything else, and where the function cannot be traced.
        """
        if dims:
            raise UsageError("a traced function has sizes already, there is none to bind; leave out --dim (dims)")
        self._example: Sequence[Any] = ()
        self._in_tree: Any = None
        self._out_tree: Any = None
        if isinstance(source, ClosedJaxpr):
            self._example = [ShapeDtypeStruct(each.shape, each.dtype) for each in source.in_avals]
            self._whole = of_jaxpr(source, self._example)
            self._program = flatten(source, "jaxpr")
        else:
            function, args, kwargs = _call(source)
            self._whole = traced = trace(function, args, kwargs)
            self._example = tree.leaves((args, kwargs))
            self._in_tree, self._out_tree = traced.in_tree, traced.out_tree
            self._program = flatten(traced.jaxpr, traced.name, traced.donated)
        self._translation = read_program(self._program)
        self._graph = self._translation.graph

    @property
    def file_endings(self) -> tuple[str, ...]:
        """None: a traced function has no file."""
        return ()

    @property
    def program(self) -> FlatProgram:
        """The function as a flat list of equations."""
        return self._program

    @property
    def graph(self) -> Graph:
        """The function as a graph of the kernels that XLA makes of it."""
        return self._graph

    def with_host(self, host: Host) -> "JaxModel":
        """Return the same function with a host that its plans may copy to."""
        other = copy(self)
        other._graph = host.added_to(self._translation.graph)
        return other

    def apply(self, plan: Plan) -> Callable[..., Any]:
        """Return a jitted function of the same signature that runs the plan's kernels; ties keep what runs again.

        XLA orders kernels itself, as far as data and ties let it. Copies go to the host's memory space, by the plan.
        Raises FingerprintError for a plan of another function, VerificationError for a wrong one, UnsupportedError for
        one with copies where the default device has no host space of its own.
        """
        self._check(plan)
        runs: list[int] = plan.order().tolist()
        copies = copies_of(plan, self._translation)
        if copies and not has_host_space():
            raise UnsupportedError(
                f"the plan copies buffers to a host, and {_NO_HOST_SPACE}; write a plan (.plan.json)"
            )

        def applied(*args: Any, **kwargs: Any) -> Any:
            if self._in_tree is None:
                return run_plan(self._translation, runs, args, copies=copies)
            leaves, structure = tree.flatten((args, kwargs))
            if structure != self._in_tree:
                raise UsageError("the arguments are not arranged as those that the function was traced for")
            return tree.unflatten(self._out_tree, run_plan(self._translation, runs, leaves, copies=copies))

        return jit(applied)

    def save(self, plan: Plan, path: Path) -> None:
        """Raise UnsupportedError: a function has no file."""
        raise UnsupportedError("a JAX function has no file for programs; write a plan (.plan.json)")

    def measure(self, plan: Plan) -> Measurement:
        """Run the function kernel by kernel as it stands and under the plan, and count what JAX's arrays hold.

        Each kernel is compiled alone. What XLA needs where the whole function is compiled says `lowtide.jax.measure`.
        """
        self._check(plan)
        self._refuse_copies(plan)
        arguments = [_filled(leaf, place) for place, leaf in enumerate(self._example)]
        before, after = (run_kernels(self._translation, each, arguments) for each in (Plan.baseline(self.graph), plan))
        return Measurement(
            before_bytes=before.peak_bytes, after_bytes=after.peak_bytes, outputs_equal=before.results == after.results
        )

    def compiled(self) -> Any:
        """Return what XLA makes of the function: its module has the order and the addresses that XLA itself chose."""
        return self._compiled("as it stands", jaxpr_as_fun(self._whole.jaxpr)).executable

    def compiled_memory(self, plan: Plan) -> Sequence[CompiledMemory]:
        """Compile the function as it stands and with the plan's recomputation; run each once, in its own process.

        XLA orders both itself, so that its figures may be far from the plan's (`lowtide.jax.fit` holds orders). Over
        several devices its figures are one device's, and nothing is run.
        """
        self._check(plan)
        self._refuse_copies(plan)
        translation, runs = self._translation, plan.order().tolist()
        given = make_candidate("given", self.graph, in_place=False).plan
        planned = self._compiled("planned", lambda *leaves: run_plan(translation, runs, leaves))
        before = self._compiled("as it stands", jaxpr_as_fun(self._whole.jaxpr))
        space = self.graph.spaces[0].name
        return [
            self._memory(before, given.peak_bytes[space]),
            self._memory(planned, plan.peak_bytes[space]),
        ]

    def _compiled(self, name: str, flat: Flat) -> CompiledCandidate:
        try:
            return compile_flat(name, flat, self._whole, {})
        except RuntimeError as error:  # what jaxlib raises
            raise UnsupportedError(f"XLA cannot compile the function: {one_line(error)}") from error

    def _memory(self, compiled: CompiledCandidate, predicted_bytes: int) -> CompiledMemory:
        try:
            resident = added_resident_bytes(compiled.flat, self._whole.structs, compiled.options)
        except UnsupportedError:  # several devices, another system: what remains is said without it
            resident = None
        assigned = assigned_bytes(compiled.executable)
        return CompiledMemory(
            name=compiled.name,
            predicted_bytes=predicted_bytes,
            total_bytes=compiled.figures.total_bytes,
            temp_bytes=compiled.figures.temp_bytes,
            argument_bytes=compiled.figures.argument_bytes,
            assigned_bytes=None if assigned is None else assigned.reserved_bytes,
            resident_bytes=resident,
        )

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: XLA's kernels are not timed one by one."""
        raise UnsupportedError("kernels of a JAX function are not timed one by one; price them by --costs given")

    def _check(self, plan: Plan) -> None:
        if plan.graph_fingerprint != self.graph.fingerprint:
            raise FingerprintError("the plan was made for another graph; plan this function with the same shapes")
        verify(self.graph, plan, check_capacity=False)

    def _refuse_copies(self, plan: Plan) -> None:
        if (plan.kinds > StepKind.FREE).any():
            raise UnsupportedError("copies to a host are not measured in JAX; run what apply returns, and profile that")


def _call(source: Any) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
    """Return function, arguments and keyword arguments of what a user gives."""
    if type(source).__name__ in ("Lowered", "Compiled"):
        raise UnsupportedError(
            f"a {type(source).__name__} JAX object is no longer a function; lowtide.read takes it as an HLO module, "
            "lowtide.jax the jitted function with example arguments, (function, (x, y))"
        )
    if not isinstance(source, tuple | list):
        raise UsageError(f"a {type(source).__name__} alone has no shapes; give (function, example arguments)")
    parts: list[Any] = [*cast("Sequence[Any]", source)]
    if not 2 <= len(parts) <= 3 or not callable(parts[0]):
        raise UsageError("cannot read this tuple; give (function, example arguments), and keyword arguments third")
    args = cast("Sequence[Any]", parts[1] if isinstance(parts[1], tuple | list) else (parts[1],))
    return parts[0], tuple(args), dict(parts[2]) if len(parts) == 3 else {}


def _filled(leaf: Any, place: int) -> Any:
    """Return an example's contents, or where it is a struct alone, made-up ones: the same every time."""
    if not isinstance(leaf, ShapeDtypeStruct):
        return leaf
    if is_random_key(leaf.dtype):
        return random.split(random.key(place), leaf.shape)
    return numpy.asarray(np.random.default_rng(place).uniform(0.0, 1.0, leaf.shape)).astype(leaf.dtype)
