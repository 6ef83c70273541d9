"""Losses planned with their backward pass."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.core import Tracer

from lowtide.frameworks.jax.fitting.forms import FunctionForm, RunOrder
from lowtide.frameworks.jax.fitting.losses import Wanted, with_backward
from lowtide.frameworks.jax.fitting.search import FitFound, Use, whole
from lowtide.frameworks.jax.flat.flatten import Flat
from lowtide.frameworks.jax.flat.program import run_program
from lowtide.frameworks.jax.flat.split import split
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import is_differentiable, jax, struct_like

Search = Callable[[TracedFunction, Sequence[Use], FitFound | None], FitFound]
"""Fit a function for some uses to the budget, or to the target and options of another search."""


class FittedLoss:
    """A loss with planned values and gradients. Values alone and each set of wanted leaves have their own search."""

    def __init__(self, traced: TracedFunction, search: Search, wanted: Wanted) -> None:
        self._traced = replace(traced, donated=(False,) * len(traced.structs), shardings=None)
        self._search = search
        self.found = search(with_backward(self._traced, wanted), self._uses, None)
        self._parts: dict[Wanted, _Parts] = {wanted: self._parts_of(self.found)}
        self._alone: Flat | None = None
        self._call: Any = jax.custom_vjp(self._run_alone)
        self._call.defvjp(self._save, self._pull, symbolic_zeros=True)

    def __call__(self, leaves: Sequence[Any]) -> Sequence[Any]:
        return self._call(*leaves)

    @property
    def n_results(self) -> int:
        return len(self._traced.jaxpr.out_avals)

    def gradients(self, wanted: Wanted, saved: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
        """Return the gradients of the wanted leaves, None for others; `saved` begins with the leaves."""
        given = [
            jax.numpy.zeros(each.shape, each.dtype) if isinstance(each, jax.custom_derivatives.SymbolicZero) else each
            for each, aval in zip(cotangents, self._traced.jaxpr.out_avals, strict=True)
            if is_differentiable(aval.dtype)
        ]
        count = len(wanted)
        gradients = iter(self._parts_for(wanted).gradients(*saved[:count], *given, *saved[count:]))
        return tuple(next(gradients) if each else None for each in wanted)

    def _parts_for(self, wanted: Wanted) -> "_Parts":
        if wanted not in self._parts:
            joint = with_backward(self._traced, wanted)
            self._parts[wanted] = self._parts_of(self._search(joint, self._uses, self.found))
        return self._parts[wanted]

    def _parts_of(self, found: FitFound) -> "_Parts":
        values, gradients = self._split(found.form, found.order)
        options = found.best.options
        return _Parts(values=_jitted(values, options), gradients=_jitted(gradients, options))

    @property
    def _uses(self) -> Sequence[Use]:
        return self._both, self._gradients_of

    def _split(self, form: FunctionForm, order: RunOrder) -> tuple[Flat, Flat]:
        traced = self._traced
        n_leaves, n_results = len(traced.structs), self.n_results
        cotangents = [struct_like(aval) for aval in traced.jaxpr.out_avals if is_differentiable(aval.dtype)]
        flat = order.with_first(form, n_results).of(form)
        parts = split(flat, [*traced.structs, *cotangents], n_leaves, n_results)

        def values(*leaves: Any) -> Sequence[Any]:
            zeros = (jax.numpy.zeros(each.shape, each.dtype) for each in cotangents)
            return run_program(parts.first, [*leaves, *zeros])

        return values, lambda *given: run_program(parts.rest, given)

    def _gradients_of(self, form: FunctionForm, order: RunOrder) -> Flat:
        both, count = self._both(form, order), self.n_results
        return lambda *given: both(*given)[count:]

    def _both(self, form: FunctionForm, order: RunOrder) -> Flat:
        values, gradients = map(jax.jit, self._split(form, order))
        n_leaves, n_results = len(self._traced.structs), self.n_results

        def both(*given: Any) -> Sequence[Any]:
            found = values(*given[:n_leaves])
            return [*found[:n_results], *gradients(*given, *found[n_results:])]

        return both

    def _run_alone(self, *leaves: Any) -> Sequence[Any]:
        """Return the values, within the temp bytes allowed with gradients."""
        if self._alone is None:
            found = self._search(self._traced, (whole,), self.found)
            self._alone = _jitted(found.best.flat, found.best.options)
        return self._alone(*leaves)

    def _save(self, *primals: Any) -> tuple[Sequence[Any], Any]:
        leaves = [primal.value for primal in primals]
        wanted = tuple(
            bool(primal.perturbed) and is_differentiable(struct.dtype)
            for primal, struct in zip(primals, self._traced.structs, strict=True)
        )
        found, count = self._parts_for(wanted).values(*leaves), self.n_results
        return found[:count], jax.tree_util.Partial(_Backward(self, wanted), *leaves, *found[count:])

    def _pull(self, saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        return saved(*cotangents)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    values: Flat
    gradients: Flat


class _Backward:
    def __init__(self, loss: FittedLoss, wanted: Wanted) -> None:
        self._loss = loss
        self._wanted = wanted

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        n_saved = len(values) - self._loss.n_results
        return self._loss.gradients(self._wanted, values[:n_saved], values[n_saved:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Backward) and (self._loss, self._wanted) == (other._loss, other._wanted)

    def __hash__(self) -> int:
        return hash((id(self._loss), self._wanted))


def _jitted(flat: Flat, options: Mapping[str, str]) -> Flat:
    """Jit a function; its compiler options apply unless another `jit` is around it."""
    inside, outside = jax.jit(flat), jax.jit(flat, compiler_options=dict(options) or None)

    def run(*values: Any) -> Sequence[Any]:
        return (inside if any(isinstance(value, Tracer) for value in values) else outside)(*values)

    return run
