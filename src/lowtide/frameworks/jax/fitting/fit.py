"""Fit a function to a memory budget, with equal values."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jax.core import Tracer

from lowtide.core.effort import EffortName
from lowtide.core.errors import UnsupportedError
from lowtide.core.progress import Report, Stage, showing
from lowtide.core.units import format_bytes, percent
from lowtide.engine.costs import Prices, price
from lowtide.engine.costs.devices import Device, device_named, devices
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan.claim import Claim
from lowtide.engine.planning.budget import given_budget, is_part, parse_budget
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings, allowed_techniques
from lowtide.frameworks.jax.fitting.absent_gpu import device_to_compile_for
from lowtide.frameworks.jax.fitting.fitted_loss import FittedLoss
from lowtide.frameworks.jax.fitting.host_state import HostStateSearch
from lowtide.frameworks.jax.fitting.losses import is_loss, wanted_leaves
from lowtide.frameworks.jax.fitting.search import FitFound, FitSearch, Tried, Use, whole
from lowtide.frameworks.jax.flat.traced import TracedFunction, off_host, struct_of, trace
from lowtide.frameworks.jax.internals import NO_HOST_SPACE, has_host_space, jax
from lowtide.frameworks.jax.measure.compiled import CompiledFigures

_USUAL_LINK = 2.5e10
"""Bytes per second to the host, over 16 lanes of PCIe 4, for devices that are not known."""


def fit(
    function: Callable[..., Any],
    budget: str | int | float,
    *,
    example_args: Sequence[Any],
    example_kwargs: Mapping[str, Any] | None = None,
    allow: Iterable[str] | None = None,
    transient: bool = False,
    effort: EffortName = "fast",
    argnums: int | Sequence[int] | None = None,
    device: str | None = None,
    progress: bool | Report = True,
) -> "FittedFunction":
    """Return a function with the same signature and values that meets a budget once it is compiled.

    `function` may contain `jax.grad` and an optimizer update, be jitted, and donate arguments. It is traced on
    `example_args`, arrays or ShapeDtypeStructs. A `budget` in percent ("60%") is a share of the temp bytes of the
    unmodified function: XLA's bytes besides arguments and results. A budget in bytes ("2 GiB") includes arguments and
    results, unless `transient` is set. `allow` names techniques, by default "reorder", "share" and "recompute"; without
    "recompute", only XLA's schedulers and better orders are tried. "offload" may keep state in pinned host memory to
    meet a budget in bytes: donated arguments that only their own update uses. `place` moves them there.

    `device` compiles for a GPU that is not there, such as "h100": the result has figures, but cannot be called.

    If no compiled candidate meets the budget, the best one is returned with `fits` False; `shortfall` and `floor`
    explain the gap. Calls with other shapes or types start a new search; a Python number is of another type than an
    array.

    A function that returns one floating-point number is a loss: the budget is for its value and the gradients of the
    arguments `argnums`, by default the first, and `jax.grad` of the returned function follows the plan. `argnums` makes
    any function a loss, `()` none.

    On a terminal or in a notebook, a search longer than two seconds shows its progress. `progress` turns that off, or
    receives its lines.

    Raises UsageError for a bad call or a function that cannot be traced, UnsupportedError for "offload" on a
    CPU, or for a device that JAX cannot compile for.

    >>> import jax.numpy as jnp, lowtide.jax
    >>> fitted = lowtide.jax.fit(lambda x: jnp.tanh(x) @ x, "100%", example_args=(jnp.ones((8, 8)),))
    >>> fitted(jnp.ones((8, 8))).shape, fitted.fits
    ((8, 8), True)
    """
    techniques = allowed_techniques(allow, given_budget(budget))
    settings = PlanSettings(budget=budget, transient=transient, techniques=techniques, effort=effort, addresses=False)
    if "offload" in techniques and device is None and not has_host_space():
        raise UnsupportedError(f"{NO_HOST_SPACE}; leave out offload, or name a GPU to compile for (device=)")
    chosen = (argnums,) if isinstance(argnums, int) else None if argnums is None else tuple(argnums)
    traced = traced_for(device, function, example_args, example_kwargs)
    return FittedFunction(function, settings, chosen, traced, progress, device)


def traced_for(
    device: str | None, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
) -> TracedFunction:
    """Trace a function for the devices of its examples, or for one that is not there."""
    traced = trace(function, args, kwargs)
    return traced if device is None else traced.on_device(device_to_compile_for(device_named(device)))


class FittedFunction:
    """The result of `fit`: call it like the original function, or print it.

    Inside a transformation of JAX it is traced; give `compiler_options` to the outermost `jit`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        settings: PlanSettings,
        argnums: tuple[int, ...] | None,
        traced: TracedFunction,
        progress: bool | Report = True,
        absent: str | None = None,
    ) -> None:
        functools.update_wrapper(self, function, updated=())
        device = _known_device() if absent is None else device_named(absent)
        self._function = function
        self._absent = absent
        costs = settings.costs if device is None else _costs_of(device)
        self._settings = replace(settings, costs=costs, techniques=settings.techniques - {"offload"})
        counts_state = not (settings.transient or is_part(settings.budget))
        self._may_move_state = "offload" in settings.techniques and counts_state
        self._estimate = "estimate" if device is None else f"estimate for {device.name}"
        self._link = _USUAL_LINK if device is None else device.host_bytes_per_second
        self._argnums = argnums
        self._traced = traced
        self._progress: bool | Report = progress
        self._fitted: dict[Any, _Fitted] = {}
        self.found = self._fit(_signature(traced.in_tree, traced.structs), traced).found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        fitted, leaves = self._fitted_for(args, kwargs)
        return jax.tree.unflatten(fitted.traced.out_tree, fitted.run(leaves))

    def place(self, *args: Any, **kwargs: Any) -> Any:
        """Return the positional arguments with state in pinned host memory, where calls expect and return it.

        A call moves arguments that are elsewhere, but then they take memory twice.
        """
        fitted, leaves = self._fitted_for(args, kwargs)
        return jax.tree.unflatten(fitted.traced.in_tree, fitted.traced.placed(leaves))[0]

    def _fitted_for(self, args: Any, kwargs: Any) -> "tuple[_Fitted, Sequence[Any]]":
        if self._absent is not None:
            raise UnsupportedError(
                f"the function was compiled for an absent {self._absent}; fit it there, without device="
            )
        leaves, structure = jax.tree.flatten((args, kwargs))
        structs = [struct_of(leaf) for leaf in leaves]
        signature = _signature(structure, structs)
        fitted = self._fitted.get(signature)
        if fitted is None:
            structs = map(off_host, structs) if self._may_move_state else structs
            examples, named = jax.tree.unflatten(structure, structs)
            fitted = self._fit(signature, trace(self._function, examples, named))
        return fitted, leaves

    def _fit(self, signature: Any, traced: TracedFunction) -> "_Fitted":
        argnums = self._argnums_of(traced)
        if argnums:
            loss = FittedLoss(traced, self._search, wanted_leaves(traced, argnums))
            fitted = _Fitted(traced, loss.found, loss)
        else:
            found = self._search(traced)
            place = found.traced.placed if self._may_move_state else None
            fitted = _Fitted(found.traced, found, lambda leaves: _run_found(found, leaves, place))
        self._fitted[signature] = fitted
        return fitted

    def _search(self, traced: TracedFunction, uses: Sequence[Use] = (whole,), like: FitFound | None = None) -> FitFound:
        with showing(self._progress) as report:
            report(Stage.READ)
            if like is not None:
                return FitSearch(traced, self._settings, uses, (like.best.options,)).fit(like.target_bytes)
            search = FitSearch(traced, self._settings, uses)
            target = _target_bytes(self._settings, search.unmodified.figures)
            if self._may_move_state and not self._argnums_of(traced):
                return HostStateSearch(search, self._settings, self._link).fit(target)
            return search.fit(target)

    def _argnums_of(self, traced: TracedFunction) -> tuple[int, ...]:
        return ((0,) if is_loss(traced) else ()) if self._argnums is None else self._argnums

    @property
    def fits(self) -> bool:
        """Whether XLA's temp bytes meet the budget."""
        return self.found.fits

    @property
    def budget_bytes(self) -> int:
        """The temp bytes that the budget allows; 0 if arguments and results alone exceed it."""
        return max(0, self.found.target_bytes)

    @property
    def temp_bytes(self) -> int:
        """XLA's bytes besides arguments and results."""
        return self.found.best.figures.temp_bytes

    @property
    def unmodified_temp_bytes(self) -> int:
        """The temp bytes of the unmodified function."""
        return self.found.unmodified.temp_bytes

    @property
    def predicted_bytes(self) -> int | None:
        """The modeled peak of the plan, if any."""
        return self.found.predicted_bytes

    @property
    def result(self) -> Result | None:
        """None without a plan, or for a plan by segments."""
        return self.found.result

    @property
    def state_on_host_bytes(self) -> int:
        """Bytes of state in host memory, per device."""
        return 0 if self.found.traced.state is None else self.found.traced.state.n_bytes

    @property
    def compiler_options(self) -> dict[str, str]:
        """Options for a `jit` that calls this function."""
        return dict(self.found.best.options)

    @property
    def tried(self) -> tuple[Tried, ...]:
        """Every compiled candidate."""
        return self.found.tried

    @property
    def shortfall(self) -> str | None:
        """Why the budget is missed, if it is."""
        if self.fits:
            return None
        lowest = f"{len(self.tried)} compiled candidates need at least {format_bytes(self.temp_bytes)} of temporaries"
        if self.found.target_bytes < 0:
            return f"{lowest}, and {self._held}"
        return f"{lowest}, and the budget allows {format_bytes(self.budget_bytes)}; {self._proof}"

    @property
    def _held(self) -> str:
        held = self.found.unmodified.total_bytes - self.found.unmodified.temp_bytes - self.state_on_host_bytes
        taken = f"arguments and results alone take {format_bytes(held)}, more than the budget"
        return f"{taken}; give at least {held + self.temp_bytes} bytes"

    @property
    def floor(self) -> Claim | None:
        """The modeled bytes that no plan can go below; no bound on XLA's bytes."""
        return self.found.floor

    @property
    def _proof(self) -> str:
        if self.floor is None:
            return "no floor is known"
        floor = int(self.floor.at_least)
        sentence = f"in lowtide's model the floor is {format_bytes(floor)}: {self.floor.sentence}"
        return sentence if floor > self.budget_bytes else f"{sentence}, so a plan may still fit"

    def __str__(self) -> str:
        found = self.found
        lines = [
            f"{self._traced.name}: {'fits' if self.fits else 'misses the budget'}, {found.best.name}",
            f"  budget           {format_bytes(self.budget_bytes)} of temporaries",
            f"  unmodified       {format_bytes(found.unmodified.temp_bytes)} (XLA's temp bytes)",
            f"  now              {format_bytes(self.temp_bytes)} (XLA's temp bytes)",
        ]
        if found.predicted_bytes is not None:
            lines.append(
                f"  predicted        {format_bytes(found.predicted_bytes)} (peak of the plan, lowtide's model)"
            )
        if found.result is not None and found.result.base_cost:
            more = percent(found.result.extra_cost / found.result.base_cost)
            lines.append(f"  recomputed       {found.result.reruns} kernels, {more} more time ({self._estimate})")
        if self.state_on_host_bytes:
            seconds = 2 * self.state_on_host_bytes / self._link
            copies = f"{1e3 * seconds:,.1f} ms of copies ({self._estimate})"
            lines.append(f"  state on host    {format_bytes(self.state_on_host_bytes)}, {copies}")
        if self.shortfall is not None:
            lines.append(f"  shortfall        {self.shortfall}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Fitted:
    traced: TracedFunction
    found: FitFound
    run: Callable[[Sequence[Any]], Sequence[Any]]


def _known_device() -> Device | None:
    kind = jax.devices()[0].device_kind
    return next((device for device in devices().values() if device.name == kind), None)


def _costs_of(device: Device) -> Callable[[Graph], Prices]:
    return lambda graph: price(graph, "eager", machine=device.machine)


def _target_bytes(settings: PlanSettings, unmodified: CompiledFigures) -> int:
    builder = GraphBuilder("arguments and results")
    builder.add_buffer("held", unmodified.total_bytes - unmodified.temp_bytes, Lifetime.PERSISTENT)
    graph = builder.build()
    space = graph.spaces[0].name
    budget = parse_budget(settings.budget, graph, {space: unmodified.temp_bytes}, transient=settings.transient)
    return budget.allowed[space] or 0


def _run_found(found: FitFound, leaves: Sequence[Any], place: Callable[..., Any] | None) -> Sequence[Any]:
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return found.best.flat(*leaves)
    return found.best.executable(*(leaves if place is None else place(leaves)))


def _signature(structure: Any, structs: Iterable[Any]) -> Any:
    return structure, tuple((struct.shape, str(struct.dtype), struct.weak_type) for struct in structs)
