"""What a user may say to the backend, checked before anything is traced."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from lowtide.core.effort import EffortName, check_effort
from lowtide.core.errors import UsageError
from lowtide.core.files import path_of
from lowtide.core.techniques import ROUNDING, Techniques, checked_techniques
from lowtide.engine.costs import PROFILES, Prices, check_profile, price
from lowtide.engine.graph import Graph
from lowtide.engine.planning.budget import GivenBudget, read_budget
from lowtide.engine.planning.settings import PlanSettings, allowed_techniques
from lowtide.frameworks.torch.compile.defaults import default_options
from lowtide.frameworks.torch.emit.transfers.link import check_host

COMPILERS = ("inductor", "eager")
DEFAULTS = replace(PlanSettings(), techniques=PlanSettings.techniques | {"recompute"}, addresses=False)
"""PyTorch's own defaults: whoever gives a budget wants the program to fit, so that ops may run again, and PyTorch's
allocator places what they make."""
BACKEND_DEFAULTS = replace(DEFAULTS, effort="fast")
"""Those of the backend: planning is to stay short beside compiling."""
_PRECISION = 0.005
"""What prices of ops are worth that Inductor will fuse, as a share of the program's time."""
LEFT_TO_INDUCTOR = frozenset({"share", ROUNDING})
"""Inductor decides on its own which outputs take over the storage of inputs, and its results equal those of eager to
rounding in any case."""


def prices_before_fusion(graph: Graph, profile: str = "fused") -> Prices:
    """Return what ops cost by a profile, no more exact than is worth it where Inductor will fuse them."""
    return replace(price(graph, profile), precision=_PRECISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every graph of a compiled program is planned with; the settings of planning, and what is the backend's."""

    budget: GivenBudget = BACKEND_DEFAULTS.budget
    """See `PlanSettings`; the device's, while a graph runs. None for the least peak without running anything again."""
    allow: tuple[str, ...] | None = None
    """The techniques, see `PlanSettings`; None for those of `DEFAULTS` that the compiler and the budget have a use
    for."""
    host_bandwidth: str | int | None = None
    """For "offload": how fast copies to the host and back are, each way ("25 GB/s", bytes per second); None for 1/64 of
    the speed of the device's memory, as PCIe is beside a GPU's."""
    host_capacity: str | int | None = None
    """For "offload": what the host may hold of a program's at once; None for any amount."""
    compiler: str = "inductor"
    costs: str | None = None
    """What ops cost when it is decided what runs again; None for what suits the compiler."""
    effort: EffortName = BACKEND_DEFAULTS.effort
    """See `PlanSettings`."""
    plans: str | None = None
    """A folder of plans to follow instead of planning, as `lowtide.torch.save_plans` wrote it for the same options."""
    same_on_all_ranks: bool | None = None
    """Whether every graph must be the same on all ranks of `torch.distributed`; None: where collectives in the graph
    wait for other ranks, it must be the same on those."""

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> "Options":
        """Read the options of a `torch.compile` call; those that it leaves out are the defaults of `configure`.

        Raises UsageError for any that does not exist or fit.
        """
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
        if options.budget is not None:
            read_budget(options.budget)
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
            raise UsageError(f"same_on_all_ranks is {options.same_on_all_ranks!r}; say True or False, or leave it out")
        check_host(options.allow, options.host_bandwidth, options.host_capacity)
        allowed_techniques(options.allow, options.budget)
        return options

    @property
    def techniques(self) -> Techniques:
        """What planning may do, less what the compiler decides on its own."""
        allowed = allowed_techniques(self.allow, self.budget)
        return allowed - LEFT_TO_INDUCTOR if self.compiler == "inductor" else allowed

    @property
    def settings(self) -> PlanSettings:
        """The settings that a whole graph is planned with.

        Without a budget Inductor's choice of what to save stands, and only the order of its kernels is planned.
        """
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
        """The prices of ops: under Inductor element-wise ones cost next to nothing, since they are fused."""
        return self.costs or ("fused" if self.compiler == "inductor" else "eager")
