"""JAX functions to plan, compile and measure."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, cast

from jax.extend.core import ClosedJaxpr

from lowtide.core.errors import FingerprintError, UnsupportedError, UsageError, named_type, one_line
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, StepKind, verify
from lowtide.engine.planning.measured import CompiledMemory, Measurement
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.jax.emit.run_plan import copies_of, run_plan
from lowtide.frameworks.jax.flat.flatten import Flat, flatten
from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.flat.traced import of_jaxpr, trace
from lowtide.frameworks.jax.internals import NO_HOST_SPACE, has_host_space, jax, jaxpr_as_fun, keeps_barriers
from lowtide.frameworks.jax.measure.compiled import CompiledCandidate, assigned_bytes, compile_flat
from lowtide.frameworks.jax.measure.kernels import run_kernels
from lowtide.frameworks.jax.measure.resident import added_resident_bytes, made_up
from lowtide.frameworks.jax.reading.read import read_program
from lowtide.frameworks.model import Model
from lowtide.frameworks.outputs import compare_outputs


class JaxModel(Model):
    """A JAX function and its graph."""

    def __init__(self, source: Any, dims: Mapping[str, int] | None = None) -> None:
        """Read a tuple (function, example arguments[, keyword arguments]) or a ClosedJaxpr.

        Examples are arrays or ShapeDtypeStructs. Raises UsageError for another source or a function that cannot be
        traced.
        """
        if dims:
            raise UsageError("a traced function has no dimensions to bind; leave out --dim (dims)")
        self._example: Sequence[Any] = ()
        self._in_tree: Any = None
        self._out_tree: Any = None
        if isinstance(source, ClosedJaxpr):
            self._example = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in source.in_avals]
            self._traced = of_jaxpr(source, self._example)
            self._program = flatten(source, "jaxpr")
        else:
            function, args, kwargs = _call(source)
            self._traced = traced = trace(function, args, kwargs)
            self._example = jax.tree.leaves((args, kwargs))
            self._in_tree, self._out_tree = traced.in_tree, traced.out_tree
            self._program = flatten(traced.jaxpr, traced.name, traced.donated)
        self._translation = read_program(self._program)
        self._graph = self._translation.graph

    @property
    def program(self) -> FlatProgram:
        """The function as flat equations."""
        return self._program

    @property
    def graph(self) -> Graph:
        """The graph of XLA kernels."""
        return self._graph

    def with_host(self, host: Host) -> "JaxModel":
        """Return the function with a host that plans may copy to."""
        other = copy(self)
        other._graph = host.added_to(self._translation.graph)
        return other

    def apply(self, plan: Plan) -> Callable[..., Any]:
        """Return a jitted function that runs the plan's kernels, recomputed ones behind barriers or ties.

        XLA orders the rest. Raises FingerprintError for a plan of another function, VerificationError for a wrong plan,
        UnsupportedError for copies on a device without a separate host space.
        """
        self._check(plan)
        runs: list[int] = plan.order().tolist()
        copies = copies_of(plan, self._translation)
        if copies and not has_host_space():
            raise UnsupportedError(f"the plan copies buffers to a host, and {NO_HOST_SPACE}; write a plan (.plan.json)")

        # a barrier would read a value before its copy back
        barriers = not copies and keeps_barriers(self._program.platform)

        def applied(*args: Any, **kwargs: Any) -> Any:
            if self._in_tree is None:
                return run_plan(self._translation, runs, args, copies=copies, barriers=barriers)
            leaves, structure = jax.tree.flatten((args, kwargs))
            if structure != self._in_tree:
                raise UsageError("the structure of the arguments differs from that of the example arguments")
            return jax.tree.unflatten(
                self._out_tree, run_plan(self._translation, runs, leaves, copies=copies, barriers=barriers)
            )

        return jax.jit(applied)

    def measure(self, plan: Plan) -> Measurement:
        """Run the unmodified and the planned function kernel by kernel."""
        self._check(plan)
        self._refuse_copies(plan)
        arguments = [
            made_up(leaf, place) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
            for place, leaf in enumerate(self._example)
        ]
        unmodified = Plan.baseline(self.graph)
        before, after = (run_kernels(self._translation, each, arguments) for each in (unmodified, plan))
        agreement = compare_outputs(
            before.results, after.results, lambda: run_kernels(self._translation, unmodified, arguments).results
        )
        return Measurement.of(agreement, before_bytes=before.peak_bytes, after_bytes=after.peak_bytes)

    def compiled(self) -> Any:
        """Return the compiled function, with XLA's own order and addresses."""
        return self._compiled_unmodified().executable

    def compiled_memory(self, plan: Plan) -> Sequence[CompiledMemory]:
        """Compile the unmodified and the planned function, and run each in a separate process.

        Over several devices, figures are per device and nothing is run.
        """
        self._check(plan)
        self._refuse_copies(plan)
        translation, runs = self._translation, plan.order().tolist()
        barriers = keeps_barriers(translation.program.platform)
        given = make_candidate("given", self.graph, in_place=False).plan
        planned = self._compiled("planned", lambda *leaves: run_plan(translation, runs, leaves, barriers=barriers))
        before = self._compiled_unmodified()
        space = self.graph.spaces[0].name
        return [self._memory(before, given.peak_bytes[space]), self._memory(planned, plan.peak_bytes[space])]

    def _compiled_unmodified(self) -> CompiledCandidate:
        return self._compiled("unmodified", jaxpr_as_fun(self._traced.jaxpr))

    def _compiled(self, name: str, flat: Flat) -> CompiledCandidate:
        try:
            return compile_flat(name, flat, self._traced, {})
        except RuntimeError as error:  # raised by jaxlib
            raise UnsupportedError(f"XLA cannot compile the function: {one_line(error)}") from error

    def _memory(self, compiled: CompiledCandidate, predicted_bytes: int) -> CompiledMemory:
        try:
            resident = added_resident_bytes(compiled.flat, self._traced.structs, compiled.options)
        except UnsupportedError:  # several devices, or not Linux
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
        """Raise UnsupportedError: XLA's kernels are not timed separately."""
        raise UnsupportedError("kernels of a JAX function are not timed separately; price them by --costs given")

    def _check(self, plan: Plan) -> None:
        if plan.graph_fingerprint != self.graph.fingerprint:
            raise FingerprintError("the plan was made for another graph; plan this function with the same shapes")
        verify(self.graph, plan, check_capacity=False)

    def _refuse_copies(self, plan: Plan) -> None:
        if (plan.kinds > StepKind.FREE).any():
            raise UnsupportedError("JAX cannot measure copies to a host; run the applied function and profile it")


def _call(source: Any) -> tuple[Callable[..., Any], Sequence[Any], Mapping[str, Any]]:
    if type(source).__name__ in ("Lowered", "Compiled"):
        raise UnsupportedError(
            f"{named_type(source)} JAX object is no longer a function; lowtide.read takes it as an HLO module, "
            "lowtide.jax the jitted function with example arguments, (function, (x, y))"
        )
    if not isinstance(source, tuple | list):
        raise UsageError(f"{named_type(source)} has no shapes; give (function, example arguments)")
    parts: list[Any] = [*cast("Sequence[Any]", source)]
    if not 2 <= len(parts) <= 3 or not callable(parts[0]):
        raise UsageError("cannot read this tuple; give (function, example arguments[, keyword arguments])")
    args = cast("Sequence[Any]", parts[1] if isinstance(parts[1], tuple | list) else (parts[1],))
    return parts[0], tuple(args), dict(parts[2]) if len(parts) == 3 else {}
