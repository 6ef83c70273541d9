"""The places of a base order that say most about a budget: each alone, then together with others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute import solver
from lowtide.engine.recompute.choose_drops import trade_at
from lowtide.engine.recompute.floor import Needs
from lowtide.engine.recompute.place_model import PlaceModel
from lowtide.engine.recompute.program import Program

_MOST_WEIGHED = 600_000
"""Ops times places whose bounds are found; some 1,000,000 a second."""
_MOST_PARTNERS = 12
_MOST_TOGETHER = 3
_WORTH_ANOTHER = 1.01
"""By how much another place must raise the bound to be counted."""
_APART = 60
"""Partners are at least the number of ops over this apart, as neighbors say the same."""


@dataclass(frozen=True, slots=True)
class Telling:
    """A place, and what its memory alone shows."""

    place: Place
    bound: float
    """What any plan within the budget costs at least, on top of running every op once."""


def telling_places(program: Program, needs: Needs, live: NDArray[np.int64], budget_bytes: int) -> list[Telling]:
    """Return the places where the untouched program is over a budget with what each alone shows, the dearest first.

    `live` are its bytes by place. Bounds differ much from place to place: what the weights' gradients need just before
    the end says nothing where the activations are largest. Where there are too many places, those are weighed where
    most of what idles there must go. O(places * minimum cuts), native.
    """
    over = np.flatnonzero(live > budget_bytes)
    most = max(1, _MOST_WEIGHED // max(1, len(program.order)))
    idle = np.maximum(live - needs.total, 1)
    share = (live - budget_bytes) / idle
    weighed = over[np.lexsort((over, -share[over]))][:most]
    found = [Telling(place, trade_at(program, needs, place, budget_bytes).bound) for place in weighed.tolist()]
    return sorted(found, key=lambda telling: (-telling.bound, telling.place))


def telling_together(
    model: PlaceModel, alone: Sequence[Telling], budget_bytes: int, max_work: int
) -> tuple[list[Place], float, int]:
    """Return up to three places that together show most, as far as linear programs tell, with that and the work done.

    The first is the dearest alone; each next is the one, of a dozen apart from one another, that raises the bound of
    the linear relaxation of `place_model` most. More than a few places weaken that relaxation, as what runs again in
    part at each needs its operands there in part only.
    """
    places, best, work = [alone[0].place], alone[0].bound, 0
    partners = _apart(alone, len(model.order) // _APART + 1)
    while len(places) < _MOST_TOGETHER:
        known, added = best, None
        for partner in partners:
            if partner in places or work > max_work:
                continue
            milp = model.build(sorted([*places, partner]), budget_bytes).milp
            bound, steps = solver.relax(milp, max_work=max_work - work)
            work += steps
            if bound > best:
                best, added = bound, partner
        if added is None or best < _WORTH_ANOTHER * known:
            break
        places = sorted([*places, added])
    return places, best, work


def _apart(alone: Sequence[Telling], distance: int) -> list[Place]:
    chosen: list[Place] = []
    for telling in alone:
        if all(abs(telling.place - place) >= distance for place in chosen):
            chosen.append(telling.place)
            if len(chosen) > _MOST_PARTNERS:
                break
    return chosen
