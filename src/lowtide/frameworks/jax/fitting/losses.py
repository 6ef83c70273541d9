"""`FittedLoss`: a loss planned with its backward pass, so that `jax.grad` follows the plan."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.frameworks.jax.fitting.search import FitFound
from lowtide.frameworks.jax.flat.flatten import Flat, first_results, flatten
from lowtide.frameworks.jax.flat.program import FlatProgram, run_program
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import is_floating, jax, jaxpr_as_fun
from lowtide.frameworks.jax.measure.compiled import Wrapper

Wanted = tuple[bool, ...]
"""Per leaf, whether its gradient is wanted."""


def is_loss(traced: TracedFunction) -> bool:
    """Return whether the only result is a floating-point number."""
    results = traced.jaxpr.out_avals
    return len(results) == 1 and results[0].shape == () and is_floating(results[0].dtype)


def wanted_leaves(traced: TracedFunction, args: Sequence[int]) -> Wanted:
    """Return which leaves are floating-point arrays of these arguments; raises UsageError if there are none."""
    positional, _ = traced.in_tree.children()
    counts = [child.num_leaves for child in positional.children()]
    if not all(0 <= each < len(counts) for each in args):
        raise UsageError(f"argnums {tuple(args)} is out of range; there are {len(counts)} example arguments")
    owners = [number for number, count in enumerate(counts) for _ in range(count)]
    owners += [-1] * (len(traced.structs) - len(owners))
    wanted = tuple(
        owner in args and is_floating(struct.dtype) for owner, struct in zip(owners, traced.structs, strict=True)
    )
    if not any(wanted):
        raise UsageError(f"argnums {tuple(args)} has no floating-point arrays to differentiate")
    return wanted


def with_backward(traced: TracedFunction, wanted: Wanted) -> TracedFunction:
    """Return a function of arguments and cotangents that returns results and wanted gradients."""
    count = len(wanted)
    places = [place for place, each in enumerate(wanted) if each]
    floating = [place for place, aval in enumerate(traced.jaxpr.out_avals) if is_floating(aval.dtype)]
    body: Callable[..., Sequence[Any]] = jaxpr_as_fun(traced.jaxpr)

    def joint(*values: Any) -> list[Any]:
        leaves, cotangents = list(values[:count]), values[count:]

        def of_wanted(*chosen: Any) -> tuple[list[Any], list[Any]]:
            merged = list(leaves)
            for place, leaf in zip(places, chosen, strict=True):
                merged[place] = leaf
            results = list(body(*merged))
            return [results[place] for place in floating], results

        _, pull, results = jax.vjp(of_wanted, *(leaves[place] for place in places), has_aux=True)
        return [*results, *pull(list(cotangents))]

    results = traced.jaxpr.out_avals
    structs = (*traced.structs, *(jax.ShapeDtypeStruct(results[n].shape, results[n].dtype) for n in floating))
    return replace(
        traced,
        name=f"{traced.name} with its backward pass",
        jaxpr=jax.make_jaxpr(joint)(*structs),
        structs=structs,
        donated=(False,) * len(structs),
        shardings=None,
    )


class FittedLoss:
    """A loss with planned gradients. Each set of wanted leaves has its own search."""

    def __init__(self, traced: TracedFunction, search: Callable[[TracedFunction, Wrapper], FitFound]) -> None:
        self._traced = traced
        self._search = search
        self._found: dict[Wanted, tuple[TracedFunction, FitFound]] = {}
        self._call: Any = jax.custom_vjp(self._forward)
        self._call.defvjp(self._save, self._pull, symbolic_zeros=True)

    def found(self, wanted: Wanted) -> FitFound:
        """Return the search result for these leaves."""
        return self._fitted(wanted)[1]

    def __call__(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Return the leaves of the results."""
        return self._call(*leaves)

    def _fitted(self, wanted: Wanted) -> tuple[TracedFunction, FitFound]:
        if wanted not in self._found:
            joint = with_backward(self._traced, wanted)
            self._found[wanted] = joint, self._search(joint, lambda flat: self._as_differentiated(joint, flat))
        return self._found[wanted]

    def _forward(self, *leaves: Any) -> list[Any]:
        program = flatten(self._traced.jaxpr, self._traced.name)
        return _run_jitted(program, leaves)

    def _save(self, *primals: Any) -> tuple[list[Any], Any]:
        """Run the joint program's forward pass, so that XLA merges both. Save only the arguments."""
        leaves = [primal.value for primal in primals]
        wanted = tuple(
            bool(primal.perturbed) and is_floating(struct.dtype)
            for primal, struct in zip(primals, self._traced.structs, strict=True)
        )
        joint, _ = self._fitted(wanted)
        return self._values(joint, leaves), jax.tree_util.Partial(_Backward(self, wanted), *leaves)

    def _values(self, joint: TracedFunction, leaves: Sequence[Any]) -> list[Any]:
        program = first_results(flatten(joint.jaxpr, joint.name), len(self._traced.jaxpr.out_avals))
        zeros = [jax.numpy.zeros(struct.shape, struct.dtype) for struct in joint.structs[len(leaves) :]]
        return _run_jitted(program, [*leaves, *zeros])

    def _as_differentiated(self, joint: TracedFunction, flat: Flat) -> Flat:
        """Return the joint program as JAX runs it: only gradients come from `flat`."""
        leaves, count = len(self._traced.structs), len(self._traced.jaxpr.out_avals)
        return lambda *values: [*self._values(joint, values[:leaves]), *jax.jit(flat)(*values)[count:]]

    def _pull(self, saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        return saved(*cotangents)

    def gradients(self, wanted: Wanted, leaves: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of the wanted leaves, None for others."""
        found = self.found(wanted)
        given = [
            jax.numpy.zeros(each.shape, each.dtype) if isinstance(each, jax.custom_derivatives.SymbolicZero) else each
            for each, aval in zip(cotangents, self._traced.jaxpr.out_avals, strict=True)
            if is_floating(aval.dtype)
        ]
        results = jax.jit(found.best.flat)(*leaves, *given)
        gradients = iter(results[len(self._traced.jaxpr.out_avals) :])
        return tuple(next(gradients) if each else None for each in wanted)


class _Backward:
    """The backward pass: a function of saved leaves and cotangents."""

    def __init__(self, loss: FittedLoss, wanted: Wanted) -> None:
        self._loss = loss
        self._wanted = wanted

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        count = len(self._wanted)
        return self._loss.gradients(self._wanted, values[:count], values[count:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backward) and (self._loss, self._wanted) == (other._loss, other._wanted)

    def __hash__(self) -> int:
        return hash((id(self._loss), self._wanted))


def _run_jitted(program: FlatProgram, leaves: Sequence[Any]) -> list[Any]:
    def forward(*values: Any) -> list[Any]:
        return run_program(program, values)

    return jax.jit(forward)(*leaves)
