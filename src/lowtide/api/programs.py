"""Programs of any framework and their plans: found, written to a file, and read again for the same program."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lowtide.api.opening import check_output, open_model, save_applied
from lowtide.core.effort import EffortName
from lowtide.core.files import path_of
from lowtide.core.progress import Report
from lowtide.core.techniques import checked_techniques
from lowtide.engine.costs import Prices
from lowtide.engine.offload import Host
from lowtide.engine.plan import Plan, checked_plan
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.plan_file import read_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings


def minimize(
    program: Any,
    *,
    budget: GivenBudget = PlanSettings.budget,
    transient: bool = PlanSettings.transient,
    allow: Iterable[str] = PlanSettings.techniques,
    in_place: bool = PlanSettings.in_place,
    addresses: bool = PlanSettings.addresses,
    scheduler: str | None = PlanSettings.scheduler,
    costs: str | Prices = "given",
    effort: EffortName = PlanSettings.effort,
    host: Host | None = PlanSettings.host,
    dims: Mapping[str, int] | None = None,
    trust: bool = False,
    progress: Report | None = None,
) -> Result:
    """Find the plan with the least peak, or one within a budget: the best of all orders, in-place pairs, and addresses.

    `program` is anything that `lowtide.open_model` takes, a graph included, with `dims`, `host` and `trust`; a program
    whose largest tensors can be computed in chunks is planned in that form too, which a bare graph does not tell.
    `lowtide.apply(result.plan, program)` carries the plan out, whichever of the two it is for.

    `budget` is what the first memory space must hold, persistent buffers included unless it is `transient`, in bytes
    ("8 GiB"), or a percentage of the baseline's peak ("70%"), persistent buffers not included. With a budget the plan
    is not the one of least peak, but one that fits and moves few ops of the program, none where the program fits as it
    stands. Where nothing fits it is the one of least peak, which `scheduler="search"` asks for in any case.
    `allow` names the techniques: "reorder" (another order than the given one), "share" (in-place pairs), "recompute"
    (ops may run again, at the least extra cost, where no order fits the budget; see `recompute.compose`), "offload"
    (buffers may visit a memory space that the first one has bandwidth to and from).
    `addresses` leaves out, if False, where buffers lie: a runtime with an allocator of its own does not ask for that.
    `scheduler` restricts the search to one order by name. `costs` says what ops cost: the graph's own figures
    ("given"), a profile ("eager", "fused"), or prices read from a costs file. `effort` is how much work the search may
    do: "fast", "balanced" or "max".

    The plan is verified before it is returned. The status is optimal when the peak meets the lower bound, or within a
    budget the extra cost what any allowed plan costs; `claims` says which plans each bound is of. It is infeasible when
    the bound or a capacity proves that no plan fits, interrupted when Ctrl-C ended the search with the best plan
    so far, else feasible. A plan is returned in every case. Raises UsageError for a bad call, and what `open_model`
    raises for a program that cannot be read.

    >>> import lowtide
    >>> builder = lowtide.GraphBuilder("two branches")
    >>> x = builder.add_buffer("x", 10, lowtide.Lifetime.INPUT)
    >>> large = [builder.add_buffer(f"large{k}", 100) for k in range(2)]
    >>> small = [builder.add_buffer(f"small{k}", 1, lowtide.Lifetime.OUTPUT) for k in range(2)]
    >>> grow = [builder.add_op(f"grow{k}", "grow", reads=[x], writes=[large[k]]) for k in range(2)]
    >>> shrink = [builder.add_op(f"shrink{k}", "shrink", reads=[large[k]], writes=[small[k]]) for k in range(2)]
    >>> result = lowtide.minimize(builder.build())
    >>> result
    Result('two branches': optimal, peak 211 B -> 112 B)
    >>> [step.op for step in result.plan.steps() if hasattr(step, "op")]
    [0, 2, 1, 3]
    """
    settings = PlanSettings(
        budget=budget,
        transient=transient,
        techniques=checked_techniques(allow),
        in_place=in_place,
        addresses=addresses,
        scheduler=scheduler,
        costs=costs,
        effort=effort,
        host=host,
    )
    return plan_best_form(open_model(program, dims, host, trust=trust), settings, progress)


def save_plan(
    plan: Plan,
    path: str | Path,
    program: Any,
    *,
    host: Host | None = None,
    dims: Mapping[str, int] | None = None,
    trust: bool = False,
) -> None:
    """Write a plan for a program to a plan file (.plan.json[.gz]); `load_plan` reads it again.

    Raises UsageError for another name, WriteError where the file cannot be written, FingerprintError for a plan of
    another program.

    >>> import lowtide
    >>> builder = lowtide.GraphBuilder("one op")
    >>> y = builder.add_buffer("y", 1024, lowtide.Lifetime.OUTPUT)
    >>> op = builder.add_op("make", "make", writes=[y])
    >>> graph = builder.build()
    >>> lowtide.save_plan(lowtide.minimize(graph).plan, "one_op.plan.json", graph)
    >>> lowtide.load_plan("one_op.plan.json", graph).peak_bytes
    {'device': 1024}
    """
    target = path_of(path)
    check_output(target)
    save_applied(open_model(program, dims, host, trust=trust), checked_plan(plan), target)


def load_plan(
    path: str | Path,
    program: Any,
    *,
    over_budget: bool = False,
    host: Host | None = None,
    dims: Mapping[str, int] | None = None,
    trust: bool = False,
) -> Plan:
    """Read a plan file that was written for a program, on the command line or here, and verify it for this program.

    `lowtide.apply(plan, program)` carries it out. `program`, `host`, `dims` and `trust` are those of `minimize`. Raises
    FingerprintError for a plan of another program or host; VerificationError for a wrong one, and unless `over_budget`
    for one that says itself that it does not fit; InputError and its kinds for a file that cannot be read.
    """
    return read_plan(path_of(path), open_model(program, dims, host, trust=trust), over_budget=over_budget)[1]
