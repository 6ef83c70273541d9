"""The settings of planning, from which all interfaces derive their options."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields

from lowtide.core.effort import DEFAULT_EFFORT, EffortName, check_effort
from lowtide.core.errors import UsageError
from lowtide.core.techniques import COST_NOTHING, Techniques, checked_techniques, refuse_without_budget
from lowtide.engine.costs import Prices, price
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.schedule import SCHEDULERS
from lowtide.engine.schedule import scheduler as scheduler_named

Costs = str | Prices | Callable[[Graph], Prices]
"""A cost profile by name, prices of a graph, or a function that prices a graph."""


def _described(sentence: str) -> Mapping[str, str]:
    return {"sentence": sentence}


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Settings of planning with their defaults.

    Raises UsageError for unknown names and for an order that could not be used.
    """

    budget: GivenBudget = field(
        default=None,
        metadata=_described(
            'Most memory in the first memory space: bytes including persistent buffers ("8 GiB"), or a share of the '
            'baseline peak without them ("70%", 0.7).'
        ),
    )
    transient: bool = field(
        default=False, metadata=_described("Whether a budget in bytes excludes persistent buffers, as every peak does.")
    )
    techniques: Techniques = field(
        default=COST_NOTHING,
        metadata=_described(
            "Techniques that a plan may use: reorder (change the order of ops), share (reuse the storage of inputs for "
            "outputs), recompute (run ops twice instead of saving their results), offload (copy buffers to a host and "
            "back), rounding (chunks and updates on the host that are only equal up to rounding; PyTorch)."
        ),
    )
    effort: EffortName = field(
        default=DEFAULT_EFFORT,
        metadata=_described("Work limit of the searches, counted and not timed: fast, balanced or max."),
    )
    prove: bool = field(
        default=False,
        metadata=_described(
            "Whether to go on after the plan is found, to raise the bound of its cost or to prove that none costs less."
        ),
    )
    costs: Costs = field(
        default="given",
        metadata=_described(
            "Prices of ops: the program's own figures (given), an estimate (eager, fused, flops; for a device by name: "
            "eager@h100), or measured figures."
        ),
    )
    scheduler: str | None = field(
        default=None,
        metadata=_described(f"Use this order only: {', '.join(SCHEDULERS)}, or one that an installed package offers."),
    )
    host: Host | None = field(
        default=None,
        metadata=_described("Speed and capacity of the host that offload copies to, if the program names none."),
    )
    in_place: bool = field(default=True, metadata=_described("Whether plans may use optional in-place pairs."))
    addresses: bool = field(
        default=True,
        metadata=_described(
            "Whether buffers get addresses; planning is faster without, for runtimes that place buffers themselves."
        ),
    )

    def __post_init__(self) -> None:
        checked_techniques(self.techniques)
        check_effort(self.effort)
        if self.scheduler is None:
            return
        scheduler_named(self.scheduler)
        if self.scheduler != "given" and "reorder" not in self.techniques:
            raise UsageError(
                f"order {self.scheduler!r} needs reorder, which is not allowed; allow it, or leave the order out"
            )

    @property
    def takes_pairs(self) -> bool:
        """Whether plans may use optional in-place pairs."""
        return self.in_place and "share" in self.techniques

    @property
    def chooses_order(self) -> bool:
        """Whether any order is allowed, not just a named one or program order."""
        return "reorder" in self.techniques and self.scheduler is None

    @property
    def order_name(self) -> str:
        """The order to look for, by name."""
        return self.scheduler or ("search" if "reorder" in self.techniques else "given")

    def prices(self, graph: Graph) -> Prices:
        """Return the prices of a graph's ops; raises UsageError for an unknown profile."""
        if isinstance(self.costs, Prices):
            return self.costs
        return self.costs(graph) if callable(self.costs) else price(graph, self.costs)


def default_techniques(budget: GivenBudget) -> Techniques:
    """Return techniques that cost no time and, with a budget, "recompute"."""
    return COST_NOTHING if budget is None else COST_NOTHING | {"recompute"}


def allowed_techniques(allow: Iterable[str] | None, budget: GivenBudget) -> Techniques:
    """Return the techniques that a call allows, by default `default_techniques`.

    Raises UsageError for techniques that are unknown or need a budget.
    """
    if allow is None:
        return default_techniques(budget)
    techniques = checked_techniques(allow)
    if budget is None:
        refuse_without_budget(techniques)
    return techniques


SENTENCES: Mapping[str, str] = {setting.name: setting.metadata["sentence"] for setting in fields(PlanSettings)}
