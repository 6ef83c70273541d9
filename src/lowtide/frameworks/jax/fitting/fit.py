"""`fit`: a function of the same signature and values that needs no more memory than a budget."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.core import Tracer

from lowtide.core.effort import EffortName, check_effort
from lowtide.core.errors import UnsupportedError
from lowtide.core.techniques import Techniques, checked_techniques
from lowtide.core.units import ByteUnit
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.engine.plan.claim import Claim
from lowtide.engine.planning.budget import parse_budget
from lowtide.engine.planning.result import Result
from lowtide.frameworks.jax.fitting.losses import FittedLoss, is_loss, wanted_leaves
from lowtide.frameworks.jax.fitting.search import FitFound, FitSearch, Tried
from lowtide.frameworks.jax.flat.traced import TracedFunction, struct_of, trace
from lowtide.frameworks.jax.internals import tree
from lowtide.frameworks.jax.measure.compiled import Around, CompiledFigures

_ALLOWED = ("reorder", "share", "recompute")


def fit(
    function: Callable[..., Any],
    budget: str | int | float,
    *,
    example_args: Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    allow: Iterable[str] = _ALLOWED,
    transient: bool = False,
    effort: EffortName = "fast",
    argnums: int | Sequence[int] | None = None,
) -> "FittedFunction":
    """Return a function of the same signature and values whose compiled form needs no more than a budget.

    `function` may hold `jax.grad` and an optimizer's update, be jitted, and take donated arguments. It is traced for
    `example_args`: arrays or ShapeDtypeStructs, nothing is allocated. `budget` in percent ("60%") is of what XLA
    allocates beside arguments and results (temp bytes) for the function as it stands; in bytes ("2 GiB") it holds
    arguments and results too, unless it is `transient`. `allow` without "recompute" tries XLA's schedulers and the best
    order that planning finds, held.

    Values dropped by a plan are computed again from values that XLA can only have after the steps before, so that its
    compiler keeps the recomputation; where XLA's own order needs more than the plan, the plan's is held. What counts is
    what XLA says of the compiled result; where no candidate fits, the one that needs least is returned, `fits` is False
    and `shortfall` says what was reached, and which `floor` no plan can be below. Calls with other shapes
    are fitted anew.

    A function whose only result is one floating-point number is taken for a loss that is differentiated later: the
    budget is for its value and the gradients of the arguments `argnums`, by default the first, and `jax.grad` of what
    is returned follows the plan. `argnums` makes any function such a one, `()` none.

    Raises UsageError for a bad call and for a function that cannot be traced, UnsupportedError for "offload".

    >>> import jax.numpy as jnp, lowtide.jax
    >>> fitted = lowtide.jax.fit(lambda x: jnp.tanh(x) @ x, "100%", example_args=(jnp.ones((8, 8)),))
    >>> fitted(jnp.ones((8, 8))).shape, fitted.fits
    ((8, 8), True)
    """
    check_effort(effort)
    techniques = checked_techniques(allow)
    if "offload" in techniques:
        raise UnsupportedError(
            "fit plans no copies to a host; leave out offload, or plan with lowtide.Host and apply that on a "
            "device that has a host space"
        )
    chosen = (argnums,) if isinstance(argnums, int) else None if argnums is None else tuple(argnums)
    settings = _Settings(budget, transient, techniques, effort, chosen)
    return FittedFunction(function, settings, trace(function, example_args, example_kwargs))


@dataclass(frozen=True, slots=True)
class _Settings:
    budget: str | int | float
    transient: bool
    techniques: Techniques
    effort: EffortName
    argnums: tuple[int, ...] | None

    def differentiated(self, traced: TracedFunction) -> tuple[int, ...]:
        """Return the arguments that the function is differentiated by later; none where it is not."""
        return ((0,) if is_loss(traced) else ()) if self.argnums is None else self.argnums

    def fitted(self, traced: TracedFunction, around: Around | None = None) -> FitFound:
        search = FitSearch(traced, self.techniques, self.effort, around)
        return search.fit(self._target(search.untouched.figures))

    def _target(self, untouched: CompiledFigures) -> int:
        """Return the temp bytes that the budget leaves, read as every budget is."""
        held = GraphBuilder("arguments and results")
        held.add_buffer("held", untouched.total_bytes - untouched.temp_bytes, Lifetime.PERSISTENT)
        graph = held.build()
        space = graph.spaces[0].name
        budget = parse_budget(self.budget, graph, {space: untouched.temp_bytes}, transient=self.transient)
        return budget.allowed[space] or 0


class FittedFunction:
    """What `fit` returns: call it as the function it was made from; print it to see what was found.

    Outside of JAX's transformations it runs the compiled candidate; within `jit`, `grad`, `vmap`, `scan` or `shard_map`
    it takes part in theirs, and `compiler_options` are for the outermost `jit`.
    """

    def __init__(self, function: Callable[..., Any], settings: _Settings, traced: TracedFunction) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._settings = settings
        self._traced = traced
        self._fitted: dict[Any, _Fitted] = {}
        self.found = self._fit(_signature(traced.in_tree, traced.structs), traced).found
        """What the search found for the example arguments."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the original returns."""
        leaves, structure = tree.flatten((args, kwargs))
        structs = [struct_of(leaf) for leaf in leaves]
        signature = _signature(structure, structs)
        fitted = self._fitted.get(signature)
        if fitted is None:
            examples, named = tree.unflatten(structure, structs)
            fitted = self._fit(signature, trace(self._function, examples, named))
        return tree.unflatten(fitted.traced.out_tree, fitted.run(leaves))

    def _fit(self, signature: Any, traced: TracedFunction) -> "_Fitted":
        argnums = self._settings.differentiated(traced)
        if argnums:
            loss = FittedLoss(traced, self._settings.fitted)
            fitted = _Fitted(traced, loss.found(wanted_leaves(traced, argnums)), loss)
        else:
            found = self._settings.fitted(traced)
            fitted = _Fitted(traced, found, lambda leaves: _run_found(found, leaves))
        self._fitted[signature] = fitted
        return fitted

    @property
    def fits(self) -> bool:
        """Whether what XLA says of the example's shapes is within the budget."""
        return self.found.fits

    @property
    def budget_bytes(self) -> int:
        """The temp bytes that the budget leaves."""
        return self.found.target_bytes

    @property
    def temp_bytes(self) -> int:
        """What XLA allocates beside arguments and results."""
        return self.found.best.figures.temp_bytes

    @property
    def untouched_temp_bytes(self) -> int:
        """The same of the function as it stands."""
        return self.found.untouched.temp_bytes

    @property
    def predicted_bytes(self) -> int | None:
        """The peak of temporaries that the plan has under lowtide's model; None where there is no plan."""
        return self.found.predicted_bytes

    @property
    def result(self) -> Result | None:
        """What planning found; None where no plan was needed, or a plan by segments needs least."""
        return self.found.result

    @property
    def compiler_options(self) -> dict[str, str]:
        """The options that the figures are for; give them to the `jit` that calls this function."""
        return dict(self.found.best.options)

    @property
    def tried(self) -> tuple[Tried, ...]:
        """Every candidate that was compiled, with predicted and real temp bytes."""
        return self.found.tried

    @property
    def shortfall(self) -> str | None:
        """Why the budget is not met, in one sentence; None where it is."""
        if self.fits:
            return None
        least = (
            f"{self._unit.write(self.temp_bytes)} of temporaries is the least of {len(self.tried)} compiled candidates"
        )
        return f"{least}, the budget leaves {self._unit.write(self.budget_bytes)}; {self._proof}"

    @property
    def floor(self) -> Claim | None:
        """What no plan can be below, and over which plans; of lowtide's model, not of XLA's bytes."""
        return self.found.floor

    @property
    def _unit(self) -> ByteUnit:
        return ByteUnit(self.found.target_bytes, self.found.untouched.temp_bytes)

    @property
    def _proof(self) -> str:
        if self.floor is None:
            return "nothing is shown of what could fit"
        least = int(self.floor.at_least)
        sentence = f"under lowtide's model the floor is {self._unit.write(least)}: {self.floor.sentence}"
        return sentence if least > self.budget_bytes else f"{sentence}, which is no proof that none fits"

    def __str__(self) -> str:
        found, unit = self.found, self._unit
        lines = [
            f"{self._traced.name}: {'fits' if self.fits else 'does not fit'}, {found.best.name}",
            f"  budget           {unit.write(found.target_bytes)} of temporaries",
            f"  as it stands     {unit.write(found.untouched.temp_bytes)} (XLA's temp bytes)",
            f"  now              {unit.write(self.temp_bytes)} (XLA's temp bytes)",
        ]
        if found.predicted_bytes is not None:
            lines.append(f"  predicted        {unit.write(found.predicted_bytes)} (the plan's peak, lowtide's model)")
        if found.result is not None and found.result.base_cost:
            share = 100 * found.result.extra_cost / found.result.base_cost
            lines.append(f"  runs again       {found.result.reruns} kernels, {share:.1f} % more time by estimate")
        if self.shortfall is not None:
            lines.append(f"  shortfall        {self.shortfall}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """What was found for arguments of one structure and shape."""

    traced: TracedFunction
    found: FitFound
    run: Callable[[Sequence[Any]], Sequence[Any]]


def _run_found(found: FitFound, leaves: Sequence[Any]) -> Sequence[Any]:
    """Run a compiled candidate, or take part in the transformation that traces this call."""
    traced = any(isinstance(leaf, Tracer) for leaf in leaves)
    return found.best.flat(*leaves) if traced else found.best.executable(*leaves)


def _signature(structure: Any, structs: Iterable[Any]) -> Any:
    return structure, tuple((struct.shape, str(struct.dtype)) for struct in structs)
