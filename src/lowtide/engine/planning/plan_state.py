"""Where state and parameters live: on the device or, to fit a budget or save time, on the host."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from lowtide.core.progress import Report, current_report
from lowtide.core.techniques import ROUNDING
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.offload import HOST, find_link
from lowtide.engine.offload.updates import UpdatePlace
from lowtide.engine.plan import Plan
from lowtide.engine.planning.budget import is_part, parse_budget
from lowtide.engine.planning.draft import Draft, Keep
from lowtide.engine.planning.find_plan import baseline, find_plan, order
from lowtide.engine.planning.plan_best_form import allows_chunks, plan_best_form
from lowtide.engine.planning.program import ALL, Form, Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.planning.trade import bounds_with_reruns, recomputation_chosen_once


def plan_with_state(
    program: Program,
    settings: PlanSettings,
    progress: Report | None = None,
    keep: Keep | None = None,
    *,
    least: int = 0,
) -> Result:
    """Return the best plan of a program, with part of its state on the host if offload is allowed.

    State moves only if the budget, in bytes, is missed otherwise or met at a higher cost; parameters only if it is
    missed with all state on the host. Shares, in eighths, are bisected down to `least`, as if the extra time had one
    minimum. With "rounding", updates may run on the host where that costs less. The plan with the least extra time
    wins, then the one with the least state on the host.
    """
    if not may_move_state(program, settings):
        return plan_best_form(program, settings, progress, keep)
    search = StateSearch(program, settings, progress, keep)
    start = search.ordered(least)
    if start.interrupted:
        return search.end_early(start, least)
    if start.fits:
        found = search.plan(least)
        if found.shortfall is None and not found.extra_time:
            return found
    with recomputation_chosen_once():
        search.bisect(least)
    return _without_claims_about_others(search.best, search.with_all)


def may_move_state(program: Program, settings: PlanSettings) -> bool:
    """Return whether state may be on the host: with offload, and a budget that covers the state."""
    allows = "offload" in settings.techniques and settings.budget is not None and not settings.transient
    return allows and not is_part(settings.budget) and program.most_on_host > 0


def excludes_all_forms(program: Program, settings: PlanSettings) -> bool:
    """Return whether lower bounds exclude every plan that the settings allow, in all forms."""
    return all(
        is_excluded(baseline(form.graph, settings, None if form.name == "unmodified" else program.graph))
        for form in allowed_forms(program, settings)
    )


def is_excluded(start: Draft) -> bool:
    most = start.budget.allowed[start.graph.spaces[0].name]
    if most is None or start.fits:
        return False
    copies = "offload" in start.settings.techniques
    return most < bounds_with_reruns(start.problem, copies=copies)[0].peak_bytes


def allowed_forms(program: Program, settings: PlanSettings) -> Iterator[Form]:
    if allows_chunks(settings, settings.prices(program.graph).profile):
        yield from program.forms(rounded=ROUNDING in settings.techniques)
    else:
        yield program.make_unmodified()


Key = tuple[int, UpdatePlace]


@dataclass(eq=False)
class StateSearch:
    """Plans a program with more or less of its state and parameters on the host."""

    program: Program
    settings: PlanSettings
    progress: Report | None
    keep: Keep | None
    found: dict[Key, Result] = field(default_factory=dict[Key, Result])
    first_found: dict[Key, Result] = field(default_factory=dict[Key, Result])
    """Plans without copies of activations, whose choice takes most of the time."""
    too_large: dict[int, bool] = field(default_factory=dict[int, bool])

    @property
    def best(self) -> Result:
        best = min((self.found or self.first_found).values(), key=_rank)
        if not self._is_interrupted:
            return best
        return replace(best, status="interrupted", plan=replace(best.plan, status="interrupted"))

    @property
    def with_all(self) -> Result | None:
        return self.found.get((self.program.most_on_host, self._places[-1]))

    @property
    def with_least_on_device(self) -> Program:
        return self._moved(self.program.most_on_host, self._places[-1])

    @cached_property
    def _places(self) -> tuple[UpdatePlace, ...]:
        """Places where updates may run, in search order; the last needs the least of the device."""
        may_round = ROUNDING in self.settings.techniques
        rounds = may_round and self.program.with_state_on_host(self.program.most_on_host, "host") is not None
        return ("either", "device", "host") if rounds else ("device",)

    @property
    def _has_updates(self) -> bool:
        graph = self.program.graph
        return any(graph.persistent[buffer] for mutated in graph.mutates for buffer in mutated)

    def ordered(self, share: int) -> Draft:
        """Return a share's draft in an order that fits if one is found, without recomputation, copies and chunks."""
        moved = self._moved(share, "device")
        draft = baseline(moved.graph, self.settings_for(moved))
        return draft if draft.fits or is_excluded(draft) else order(draft, self.progress or current_report())

    def end_early(self, start: Draft, share: int) -> Result:
        """Return the plan of an interrupted draft."""
        result = find_plan(start.graph, start.settings, None, self.progress, self.keep, start=start)
        return self.compared(result, self._moved(share, "device"))

    def bisect(self, least: int) -> None:
        """Find the cheapest share; parameters move only if no plan with all state on the host fits."""
        most = self.program.most_on_host
        may_keep_all = most == ALL or not (self.program.with_state_on_host(ALL) is None or self.is_too_large(ALL))
        if least <= ALL and may_keep_all:
            self._search(least - 1, ALL)
        elif not self.is_too_large(least):
            self.plan(least)
        if most > ALL and not self._is_interrupted and not any(map(_fits_device, self.found.values())):
            least = max(least, ALL)
            if self._has_updates:
                self._search(least, most, step=ALL // 2)
            else:
                self._try_all(least, most)

    def _search(self, below: int, most: int, step: int = 1) -> None:
        for place in self._places:
            copies = not _fits_device(self.plan(most, place, copies=False))
            if self._is_interrupted:
                return
            if not _fits_device(self.plan(most, place, copies=copies)):
                continue
            low, high = below, most
            while high - low > step and not self._is_interrupted:
                share = (low + high + 1) // 2
                if self._is_no_worse(share, high, place, copies=copies):
                    high = share
                else:
                    low = share
        self._try_with_copies()
        if not self._is_interrupted:
            self._go_lower(below, step)

    def _is_no_worse(self, share: int, than: int, place: UpdatePlace, *, copies: bool) -> bool:
        if self.is_too_large(share):
            return False
        found = self.plan(share, place, copies=copies)
        return _fits_device(found) and found.extra_time <= self.plan(than, place, copies=copies).extra_time

    def _try_with_copies(self) -> None:
        """Plan shares with copies of activations, the cheapest without them first, until one is no better."""
        done = set[UpdatePlace]()
        for key, result in sorted(self.first_found.items(), key=lambda each: _rank(each[1])):
            if self._is_interrupted:
                break
            has_missed = not _fits_device(result) and self._misses_with_more(key)
            if has_missed or key in self.found or key[1] in done:
                continue
            if self.found and not self._is_better_with_copies(result):
                continue
            others = [_rank(other) for (_, place), other in self.found.items() if place == key[1]]
            rank, least = _rank(self.plan(*key)), min(others, default=None)
            if least is not None and not least[0] and rank >= least:
                done.add(key[1])

    def _go_lower(self, below: int, step: int) -> None:
        """Try smaller shares while plans with copies of activations, which may prefer these, take less time."""
        (high, place), best = min(self.found.items(), key=lambda each: _rank(each[1]))
        while high - below > step and _fits_device(best) and not self._is_interrupted:
            share = (below + high + 1) // 2
            if self.is_too_large(share):
                below = share
                continue
            first = self.first_found.get((share, place))
            if first is not None and not self._is_better_with_copies(first):
                break
            found = self.plan(share, place)
            if _rank(found) >= _rank(best):
                break
            high, best = share, found

    def _misses_with_more(self, key: Key) -> bool:
        """Return whether a plan with copies of activations missed the budget with at least as much on the host."""
        share, place = key
        missed = (other for other, result in self.found.items() if not _fits_device(result))
        return any(more >= share and at == place for more, at in missed)

    def _is_better_with_copies(self, result: Result) -> bool:
        """Return whether copies of activations may make a plan the best one."""
        best, link, waiting = self.best, find_link(result.graph, 0), result.transfers.stall_seconds
        if best.shortfall is not None or link is None:
            return True
        missed = result.shortfall.missed_bytes if result.shortfall is not None and waiting else 0
        least = waiting - result.moved_cost + missed / link.out_bytes_per_s
        return least < best.extra_time * result.unmodified_cost

    def _try_all(self, least: int, most: int) -> None:
        """Plan shares from the most down: more room may hide more copies."""
        for share in range(most, least, -1):
            is_possible = share == most or not self.is_too_large(share)
            if self._is_interrupted or not (is_possible and _fits_device(self.plan(share))):
                break

    @property
    def _is_interrupted(self) -> bool:
        return any(result.status == "interrupted" for result in (*self.found.values(), *self.first_found.values()))

    def is_too_large(self, share: int) -> bool:
        if share not in self.too_large:
            moved = self._moved(share, self._places[-1])
            peaks = dict.fromkeys(moved.graph.persistent_bytes(), 0)
            allowed = parse_budget(self.settings.budget, moved.graph, peaks).allowed[moved.graph.spaces[0].name] or 0
            self.too_large[share] = allowed < 0 or excludes_all_forms(moved, self.settings_for(moved))
        return self.too_large[share]

    def plan(self, share: int, place: UpdatePlace = "device", *, copies: bool = True) -> Result:
        found = self.found if copies else self.first_found
        key: Key = (share, place)
        if key not in found:
            found[key] = self._plan(share, place, copies=copies)
        return found[key]

    def _plan(self, share: int, place: UpdatePlace, *, copies: bool) -> Result:
        moved = self._moved(share, place)
        settings = self.settings_for(moved)
        if not copies:
            settings = replace(settings, techniques=settings.techniques - {"offload"})
        result = plan_best_form(moved, settings, self.progress, self.keep)
        return self.compared(result, moved) if share else result

    def settings_for(self, moved: Program) -> PlanSettings:
        if len(self._places) > 1 and not moved.has_rounded_forms:
            return replace(self.settings, techniques=self.settings.techniques - {ROUNDING})
        return self.settings

    def compared(self, result: Result, moved: Program) -> Result:
        program, settings = self.program, self.settings
        cost, own_cost = (float(settings.prices(each.graph).seconds.sum()) for each in (program, moved))
        return replace(
            result,
            unmodified=program.graph,
            baseline_peak_bytes=simulate(program.graph, Plan.baseline(program.graph)).peak_bytes,
            moved_cost=cost - own_cost,
            to_rounding=result.to_rounding or bool(moved.graph.updates_on_host.any()),
        )

    def _moved(self, share: int, place: UpdatePlace) -> Program:
        program = self.program
        moved = program.with_state_on_host(share, place) or program.with_state_on_host(share) if share else None
        return moved or program


def _fits_device(result: Result) -> bool:
    return result.shortfall is None or result.shortfall.space == HOST


def _rank(result: Result) -> tuple[int, float, int]:
    missed = 0 if result.shortfall is None else max(1, result.shortfall.missed_bytes)
    return missed, 0.0 if missed else result.extra_time, result.persistent_bytes.get(HOST, 0)


def _without_claims_about_others(best: Result, with_all: Result | None) -> Result:
    """Return a result that claims nothing about plans with other state on the host.

    A plan never holds more on the device with all state on the host. So a budget is impossible only if it is impossible
    then.
    """
    if best.shortfall is None:
        is_free = best.status != "optimal" or not (best.extra_time or best.updated_on_host_bytes)
        return best if is_free else replace(best, status="feasible", plan=replace(best.plan, status="feasible"))
    if (with_all is not None and _is_impossible(with_all.shortfall)) or not best.shortfall.is_impossible:
        return best
    missed = replace(best.shortfall, is_impossible=False)
    status = "interrupted" if best.status == "interrupted" else "feasible"
    return replace(best, shortfall=missed, status=status, plan=replace(best.plan, status=status))


def _is_impossible(shortfall: Shortfall | None) -> bool:
    return shortfall is not None and shortfall.is_impossible and shortfall.space != HOST
