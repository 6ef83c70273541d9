"""Whether what a plan claims can be true together: its figures, its bounds with their classes, its status."""

from collections.abc import Mapping

from lowtide.core.errors import VerificationError
from lowtide.engine.plan.claim import Claim, strongest
from lowtide.engine.plan.plan import Plan
from lowtide.engine.plan.steps import StepKind


def verify_claims(plan: Plan, n_ops: int, peak_bytes: Mapping[str, int]) -> None:
    """Check that a plan's claims contradict neither its steps, which reach `peak_bytes`, nor one another.

    The claimed peak must be that peak. If the plan is of a claim's class, its figure must not be below the bound. The
    plain bounds must be those of the claims. If the plan calls itself optimal, it must meet bounds that are of such
    plans as it is, or claim a bound of its extra cost, which nothing here can weigh. Raises VerificationError for the
    first contradiction. O(steps + claims).
    """
    _check_figures(plan, peak_bytes)
    for claim in plan.claims:
        _check_claim(plan, claim, n_ops, peak_bytes)
    bounds = {space: least for space, least in plan.lower_bound_bytes.items() if least}
    claimed = strongest(plan.claims)
    if plan.claims and bounds != claimed:
        raise VerificationError(f"the plan says lower_bound_bytes {bounds}, but claims {claimed}; correct one of them")
    is_priced = any(claim.figure == "extra cost" for claim in plan.claims)
    if plan.status == "optimal" and not is_priced:
        own = strongest(claim for claim in plan.claims if is_of_class(plan, claim, n_ops)) if plan.claims else bounds
        for space, peak in peak_bytes.items():
            bound = own.get(space, 0)
            if bound != peak:
                raise VerificationError(
                    f"the plan calls itself optimal, but needs {peak} bytes in memory space {space!r} and claims only "
                    f"that {bound} are needed by plans such as it is; call it feasible"
                )


def is_of_class(plan: Plan, claim: Claim, n_ops: int) -> bool:
    """Tell whether a plan is one of those that a claim is about."""
    return claim.holds_for(
        reruns=int((plan.kinds == StepKind.RUN).sum()) > n_ops,
        copies=bool((plan.kinds == StepKind.COPY_OUT).any()),
        pairs=len(plan.pairs.values) > 0,
    )


def _check_figures(plan: Plan, peak_bytes: Mapping[str, int]) -> None:
    peaks, bounds, arenas = plan.peak_bytes, plan.lower_bound_bytes, plan.arena_bytes
    for what, claimed in (("peak_bytes", peaks), ("lower_bound_bytes", bounds), ("arena_bytes", arenas)):
        for space in claimed:
            if space not in peak_bytes:
                raise VerificationError(f"the plan claims {what} for {space!r}, which is no memory space of the graph")
    for space, peak in peak_bytes.items():
        wrong: str | None = None
        if peaks.get(space, peak) != peak:
            wrong = f"peak_bytes {peaks[space]}"
        elif bounds.get(space, peak) > peak:
            wrong = f"lower_bound_bytes {bounds[space]}"
        elif arenas.get(space, peak) < peak:
            wrong = f"arena_bytes {arenas[space]}"
        if wrong:
            raise VerificationError(
                f"the plan claims {wrong} in memory space {space!r}, but its steps reach a peak of {peak}; "
                "correct the claim"
            )


def _check_claim(plan: Plan, claim: Claim, n_ops: int, peak_bytes: Mapping[str, int]) -> None:
    if not claim.makes_sense:
        raise VerificationError(
            f"the plan claims a bound of {claim.figure} over {claim.over}, shown by {claim.shown_by}, with space "
            f"{claim.space!r} and base order {claim.base_order!r}; there is no such claim, remove it"
        )
    if claim.figure == "extra cost":
        return
    if claim.space is None or claim.space not in peak_bytes:
        raise VerificationError(f"the plan claims something of {claim.space!r}, which is no memory space of the graph")
    peak = peak_bytes[claim.space]
    figure = peak if claim.figure == "peak" else plan.arena_bytes.get(claim.space, peak)
    if claim.at_least > figure and is_of_class(plan, claim, n_ops):
        raise VerificationError(
            f"the plan claims that {claim.sentence} than {claim.at_least} bytes of {claim.figure} in memory space "
            f"{claim.space!r}, but needs {figure} itself; correct the claim"
        )
