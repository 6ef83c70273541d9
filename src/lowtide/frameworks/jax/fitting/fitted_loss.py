"""`FittedLoss`: a loss planned with its backward pass, so that `jax.grad` follows the plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.core import Tracer

from lowtide.frameworks.jax.fitting.forms import FunctionForm, RunOrder
from lowtide.frameworks.jax.fitting.losses import Wanted, with_backward
from lowtide.frameworks.jax.fitting.search import FitFound, Use, whole
from lowtide.frameworks.jax.flat.flatten import Flat
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import is_floating, jax

Search = Callable[[TracedFunction, Sequence[Use], FitFound | None], FitFound]
"""Fit a function, compiled for some uses, to the budget, or to the target and compiler options of another search."""


class FittedLoss:
    """A loss with planned values and gradients. Values alone and each set of wanted leaves have their own search.

    JAX calls one function for the values and another one for the gradients. Each computes its part of the same planned
    program, so that XLA merges both. Only the arguments are saved between them.
    """

    def __init__(self, traced: TracedFunction, search: Search, wanted: Wanted) -> None:
        self._traced = replace(traced, donated=(False,) * len(traced.structs), shardings=None)
        self._search = search
        self.found = search(with_backward(self._traced, wanted), self._uses, None)
        """The search result for the first wanted leaves."""
        self._parts: dict[Wanted, _Parts] = {wanted: self._parts_of(self.found)}
        self._alone: Flat | None = None
        self._call: Any = jax.custom_vjp(self._run_alone)
        self._call.defvjp(self._save, self._pull, symbolic_zeros=True)

    def __call__(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """Return the leaves of the results."""
        return self._call(*leaves)

    def gradients(self, wanted: Wanted, leaves: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of the wanted leaves, None for others."""
        given = [
            jax.numpy.zeros(each.shape, each.dtype) if isinstance(each, jax.custom_derivatives.SymbolicZero) else each
            for each, aval in zip(cotangents, self._traced.jaxpr.out_avals, strict=True)
            if is_floating(aval.dtype)
        ]
        gradients = iter(self._parts_for(wanted).gradients(*leaves, *given))
        return tuple(next(gradients) if each else None for each in wanted)

    def _parts_for(self, wanted: Wanted) -> "_Parts":
        if wanted not in self._parts:
            joint = with_backward(self._traced, wanted)
            self._parts[wanted] = self._parts_of(self._search(joint, self._uses, self.found))
        return self._parts[wanted]

    def _parts_of(self, found: FitFound) -> "_Parts":
        return _Parts(
            values=_jitted(self._values_of(found.form, found.order), found.best.options),
            gradients=_jitted(self._gradients_of(found.form, found.order), found.best.options),
        )

    @property
    def _uses(self) -> Sequence[Use]:
        return self._both, self._gradients_of

    def _values_of(self, form: FunctionForm, order: RunOrder) -> Flat:
        results = self._traced.jaxpr.out_avals
        flat = order.first_of(form, len(results))
        given = [aval for aval in results if is_floating(aval.dtype)]
        return lambda *leaves: flat(*leaves, *(jax.numpy.zeros(aval.shape, aval.dtype) for aval in given))

    def _gradients_of(self, form: FunctionForm, order: RunOrder) -> Flat:
        flat, count = order.of(form), len(self._traced.jaxpr.out_avals)
        return lambda *values: flat(*values)[count:]

    def _both(self, form: FunctionForm, order: RunOrder) -> Flat:
        """Return the values and the gradients as JAX runs them."""
        values, gradients = jax.jit(self._values_of(form, order)), jax.jit(self._gradients_of(form, order))
        count = len(self._traced.structs)
        return lambda *given: [*values(*given[:count]), *gradients(*given)]

    def _run_alone(self, *leaves: Any) -> Sequence[Any]:
        """Return the values, without gradients, within the temp bytes that the budget allows with gradients."""
        if self._alone is None:
            found = self._search(self._traced, (whole,), self.found)
            self._alone = _jitted(found.best.flat, found.best.options)
        return self._alone(*leaves)

    def _save(self, *primals: Any) -> tuple[Sequence[Any], Any]:
        leaves = [primal.value for primal in primals]
        wanted = tuple(
            bool(primal.perturbed) and is_floating(struct.dtype)
            for primal, struct in zip(primals, self._traced.structs, strict=True)
        )
        return self._parts_for(wanted).values(*leaves), jax.tree_util.Partial(_Backward(self, wanted), *leaves)

    def _pull(self, saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        return saved(*cotangents)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    values: Flat
    """Of the leaves."""
    gradients: Flat
    """Of leaves and cotangents."""


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


def _jitted(flat: Flat, options: Mapping[str, str]) -> Flat:
    """Return a jitted function. The compiler options apply unless another `jit` is around it."""
    inside, outside = jax.jit(flat), jax.jit(flat, compiler_options=dict(options) or None)

    def run(*values: Any) -> Sequence[Any]:
        return (inside if any(isinstance(value, Tracer) for value in values) else outside)(*values)

    return run
