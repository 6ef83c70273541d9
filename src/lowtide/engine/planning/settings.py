"""The settings of planning: one record, from which every face of lowtide derives its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from lowtide.core.effort import DEFAULT_EFFORT, EffortName, check_effort
from lowtide.core.errors import UsageError
from lowtide.core.techniques import COST_NOTHING, Techniques, checked_techniques
from lowtide.engine.costs import Prices, price
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.schedule import SCHEDULERS
from lowtide.engine.schedule import scheduler as scheduler_named

Costs = str | Prices | Callable[[Graph], Prices]
"""A profile by name, as `price` takes it, prices of a graph, or what prices any graph."""


def _says(sentence: str) -> Mapping[str, str]:
    return {"sentence": sentence}


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """How a program is planned; what is left out is the default of every face that does not declare another one.

    Raises UsageError for names that do not exist and for an order that could not be used.
    """

    budget: GivenBudget = field(
        default=None,
        metadata=_says(
            'What the first memory space must hold: bytes with persistent buffers ("8 GiB"), or a part of the '
            'untouched peak without them ("70%", 0.7).'
        ),
    )
    transient: bool = field(
        default=False, metadata=_says("Whether a budget in bytes leaves persistent buffers out, as every peak does.")
    )
    techniques: Techniques = field(
        default=COST_NOTHING,
        metadata=_says(
            "What a plan may do: reorder (run ops in another order), share (let outputs take over the storage of "
            "inputs), recompute (run ops again), offload (copy buffers to a host and back), rounding (compute large "
            "results in chunks that equal the whole to rounding alone, where none give its bits; PyTorch)."
        ),
    )
    effort: EffortName = field(
        default=DEFAULT_EFFORT,
        metadata=_says("How much work the search may do; it is counted, not timed: fast, balanced or max."),
    )
    costs: Costs = field(
        default="given",
        metadata=_says(
            "What ops cost: the program's own figures (given), an estimate (eager, fused, flops; also on a machine by "
            "name: eager@h100), or measured figures."
        ),
    )
    scheduler: str | None = field(
        default=None,
        metadata=_says(
            f"The only order to use, instead of the best of all: {', '.join(SCHEDULERS)}, or one that an installed "
            "package offers."
        ),
    )
    host: Host | None = field(
        default=None,
        metadata=_says("The host that offload copies to, where the program names none: how fast, and how large."),
    )
    in_place: bool = field(
        default=True, metadata=_says("Whether optional in-place pairs may be used, in orders of lowtide's own too.")
    )
    addresses: bool = field(
        default=True,
        metadata=_says(
            "Whether buffers get addresses; where the runtime places them itself, planning is shorter without."
        ),
    )

    def __post_init__(self) -> None:
        checked_techniques(self.techniques)
        check_effort(self.effort)
        if self.scheduler is None:
            return
        scheduler_named(self.scheduler)  # an unknown name is refused before any work is done
        if self.scheduler != "given" and "reorder" not in self.techniques:
            raise UsageError(
                f"order {self.scheduler!r} is asked for, but reorder is not allowed; allow it, or leave the order out"
            )

    @property
    def takes_pairs(self) -> bool:
        """Whether a plan may take optional in-place pairs."""
        return self.in_place and "share" in self.techniques

    @property
    def chooses_order(self) -> bool:
        """Whether any order may be taken, rather than one by name or the program's."""
        return "reorder" in self.techniques and self.scheduler is None

    @property
    def order_name(self) -> str:
        """The order to look for, by name."""
        return self.scheduler or ("search" if "reorder" in self.techniques else "given")

    def prices(self, graph: Graph) -> Prices:
        """Return what the ops of a graph cost; raises UsageError for an unknown profile."""
        if isinstance(self.costs, Prices):
            return self.costs
        return self.costs(graph) if callable(self.costs) else price(graph, self.costs)


SENTENCES: Mapping[str, str] = {setting.name: setting.metadata["sentence"] for setting in fields(PlanSettings)}
"""What every setting is, in one sentence, by its name."""
