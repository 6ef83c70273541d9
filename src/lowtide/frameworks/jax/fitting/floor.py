"""The floor: what no plan can be below under lowtide's model of XLA's kernels, in whichever form the program is."""

from collections.abc import Sequence

from lowtide.engine.analysis.problem import Problem
from lowtide.engine.plan import Plan
from lowtide.engine.plan.claim import Claim
from lowtide.engine.recompute import least_possible
from lowtide.frameworks.jax.fitting.variants import Variant


def floor_of(variants: Sequence[Variant]) -> Claim | None:
    """Return the claim for the form of the program that can do with least; None where nothing is shown of one.

    The first variant is the program as it stands, the others have other scans. The claim is of all orders, with
    in-place pairs and whatever runs again, in bodies too. It is no bound of XLA's own bytes. O(ops + edges).
    """
    claims: list[Claim] = []
    for number, variant in enumerate(variants):
        graph = variant.translation.graph
        bound = least_possible(Problem(graph, Plan.baseline(graph).callees, in_place=True), 0)
        claims.append(
            Claim(
                figure="peak",
                space=bound.space,
                over="reruns",
                at_least=bound.peak_bytes,
                in_place=True,
                in_chunks=number > 0,
                shown_by="needs",
            )
        )
    least = min(claims, key=lambda claim: claim.at_least)
    return least if least.at_least > 0 else None
