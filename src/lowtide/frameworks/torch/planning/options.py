"""Options of the backend, checked before tracing, and their defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import lowtide
from lowtide.core.effort import EffortName, check_effort
from lowtide.core.errors import UsageError
from lowtide.core.files import path_of
from lowtide.core.techniques import ROUNDING, Techniques, checked_techniques
from lowtide.engine.costs import PROFILES, Prices, check_profile, price
from lowtide.engine.graph import Graph
from lowtide.engine.planning.budget import GivenBudget, given_budget
from lowtide.engine.planning.settings import PlanSettings, allowed_techniques
from lowtide.frameworks.torch.emit.transfers import check_host
from lowtide.frameworks.torch.planning.free_memory import is_fit

BUDGET_VARIABLE = "LOWTIDE_BUDGET"

_configured: dict[str, Any] = {}


def default_options() -> dict[str, Any]:
    """Return the configured options, with the environment's budget if they have none. Raises UsageError."""
    text = os.environ.get(BUDGET_VARIABLE, "").strip()
    if not text or "budget" in _configured:
        return dict(_configured)
    try:
        _check_budget(text)
    except UsageError as error:
        raise UsageError(f"{BUDGET_VARIABLE} in the environment: {error}") from None
    return {"budget": text, **_configured}


def _check_budget(budget: GivenBudget) -> None:
    if not is_fit(budget):
        given_budget(budget, or_fit=True)


def set_default_options(options: dict[str, Any]) -> None:
    _configured.clear()
    _configured.update(options)


COMPILERS = ("inductor", "eager")
DEFAULTS = replace(PlanSettings(), techniques=PlanSettings.techniques | {"recompute"}, addresses=False)
BACKEND_DEFAULTS = replace(DEFAULTS, effort="fast")
_PRECISION = 0.005
LEFT_TO_INDUCTOR = frozenset({"share", ROUNDING})
"""Inductor reuses storage itself, and rounds differently from eager."""


def prices_before_fusion(graph: Graph, profile: str = "fused") -> Prices:
    """Return prices only as precise as possible before Inductor fuses ops."""
    return replace(price(graph, profile), precision=_PRECISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options for all graphs of a compiled program."""

    budget: GivenBudget = BACKEND_DEFAULTS.budget
    """Bytes or a percentage while a graph runs, see `PlanSettings`. "fit": the device's free memory when the first
    graph is compiled. None: the lowest peak without recomputation."""
    allow: tuple[str, ...] | None = None
    """Techniques, see `PlanSettings`. None: those of `DEFAULTS` that the compiler and the budget can use."""
    host_bandwidth: str | int | None = None
    """For "offload": speed of copies to and from the host, each way ("25 GB/s", or bytes per second). None: 1/64 of the
    speed of the device's memory."""
    host_capacity: str | int | None = None
    """For "offload": bytes that the host may hold for one program. None: no limit."""
    compiler: str = "inductor"
    costs: str | None = None
    """Profile of op prices. None: the compiler's."""
    effort: EffortName = BACKEND_DEFAULTS.effort
    plans: str | None = None
    """Folder of plans to use instead of planning, written by `lowtide.torch.save_plans` with the same options."""
    same_on_all_ranks: bool | None = None
    """Whether graphs must be the same on all ranks. None: only on ranks that collectives in the graph wait for."""
    progress: bool = True
    """Whether to show planning that takes seconds, in a terminal or notebook."""

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> "Options":
        """Return the options of a `torch.compile` call, with defaults of `configure`. Raises UsageError."""
        values = {**default_options(), **(given or {})}
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise UsageError(f"backend 'lowtide' has no option {unknown[0]!r}; it takes {', '.join(known)}")
        allow = values.get("allow")
        if allow is not None:
            checked_techniques(allow)
            values["allow"] = (allow,) if isinstance(allow, str) else tuple(allow)
        options = cls(**values)
        _check_budget(options.budget)
        if options.compiler not in COMPILERS:
            raise UsageError(f"unknown compiler {options.compiler!r}; choose one of {', '.join(COMPILERS)}")
        check_effort(options.effort)
        if options.costs is not None and str(options.costs).partition("@")[0] not in PROFILES:
            raise UsageError(f"unknown costs {options.costs!r}; choose one of {', '.join(PROFILES)}")
        if options.costs is not None:
            check_profile(options.costs)
        if options.plans is not None:
            path_of(options.plans)
        if options.same_on_all_ranks not in (None, True, False):
            raise UsageError(f"same_on_all_ranks is {options.same_on_all_ranks!r}; give True or False, or leave it out")
        check_host(options.allow, options.host_bandwidth, options.host_capacity)
        allowed_techniques(options.allow, options.budget)
        return options

    @property
    def techniques(self) -> Techniques:
        allowed = allowed_techniques(self.allow, self.budget)
        return allowed - LEFT_TO_INDUCTOR if self.compiler == "inductor" else allowed

    @property
    def settings(self) -> PlanSettings:
        """Settings for a graph; under Inductor without a budget, only kernels are ordered."""
        before_fusion = self.compiler == "eager" or self.budget is not None
        return replace(
            BACKEND_DEFAULTS,
            budget=self.budget,
            techniques=self.techniques if before_fusion else frozenset(),
            costs=partial(prices_before_fusion, profile=self.profile) if self.compiler == "inductor" else self.profile,
            effort=self.effort,
        )

    @property
    def profile(self) -> str:
        """Under Inductor, fused element-wise ops are almost free."""
        return self.costs or ("fused" if self.compiler == "inductor" else "eager")


def checked_options(budget: GivenBudget, options: dict[str, Any]) -> dict[str, Any]:
    """Return options from a callback's arguments; a budget of None leaves the default. Raises UsageError."""
    given = options if budget is None else {"budget": budget, **options}
    if given:
        Options.parse(given)
    return given


def identity(options: Options) -> str:
    """Return a cache key that differs whenever plans may differ."""
    return f"{package_identity()} {options!r}"


@cache
def package_identity() -> str:
    root = Path(lowtide.__file__).parent
    digest = sha256()
    for path in sorted([*root.rglob("*.py"), *root.glob("_native*")]):
        digest.update(path.read_bytes())
    return f"lowtide {digest.hexdigest()}"
