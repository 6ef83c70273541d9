"""The result of `fits` for one program."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lowtide.core.documents import fields_of
from lowtide.core.progress import Report, current_report
from lowtide.core.techniques import (
    COST_NOTHING,
    NEED_BUDGET,
    ROUNDING,
    TECHNIQUES,
    Techniques,
    listed,
    listed_in_code,
    refuse_ignored,
)
from lowtide.core.units import exact_bandwidth, exact_size, format_bytes, percent
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.planning.first_fit import cannot_fit
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.program import Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.fields import FitsFields
from lowtide.reporting.planning import on_host
from lowtide.reporting.shortfall import describe_missed, device_verdict
from lowtide.reporting.table import printable


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeviceFit:
    """Whether a program fits in its first memory space, and with which techniques."""

    graph: Graph
    device_bytes: int
    """Usable memory of the device."""
    result: Result
    """Plan with the cheapest techniques that fit, or the one with the lowest peak."""
    techniques: Techniques | None
    """Empty if the unmodified program fits, None if nothing does."""
    tried: tuple[Techniques, ...]
    """Sets of techniques in the order tried."""
    source: str | None = None
    """Path or name of the program."""
    host: Host | None = None
    """The host to offload to, if any."""

    @property
    def space(self) -> str:
        """The memory space that is the device."""
        return self.graph.spaces[0].name

    @property
    def options(self) -> str:
        """Options for `lowtide plan` and `optimize`; empty if none are needed or help."""
        if not self.techniques:
            return ""
        options = (
            f"--budget {exact_size(self.device_bytes)} --allow {listed(self.techniques)} --costs {self.result.costs}"
        )
        host = self._host_used
        if host is None:
            return options
        capacity = "" if host.capacity_bytes is None else f" --host-capacity {exact_size(host.capacity_bytes)}"
        return f"{options} --host-bandwidth {exact_bandwidth(int(host.bandwidth_bytes_per_s))}{capacity}"

    @property
    def _host_used(self) -> Host | None:
        return self.host if "offload" in (self.techniques or ()) else None

    @property
    def next(self) -> str:
        """The command or, without a source, the call that plans with these techniques; or empty."""
        if not self.options:
            return ""
        if self.source is None:
            names = listed_in_code(self.techniques or frozenset())
            budget = exact_size(self.device_bytes)
            host = "" if self._host_used is None else f", host={code_of_host(self._host_used)}"
            return f'lowtide.plan(program, budget="{budget}", allow=[{names}], costs="{self.result.costs}"{host})'
        output = f"{Path(self.source).name.partition('.')[0].replace(':', '_')}.plan.json"
        return f"lowtide plan {shlex.quote(self.source)} -o {shlex.quote(output)} {self.options}"

    def __repr__(self) -> str:
        return self.to_text()

    def to_json(self) -> FitsFields:
        """Return the fields of the JSON object."""
        result = self.result
        return fields_of(
            FitsFields,
            result,
            name=self.graph.name,
            fits=self.techniques is not None,
            device_bytes=self.device_bytes,
            persistent_bytes=result.persistent_bytes[self.space] + result.state_on_host_bytes,
            baseline_peak_bytes=result.baseline_peak_bytes[self.space],
            peak_bytes=result.peak_bytes[self.space],
            techniques=None if self.techniques is None else [t for t in TECHNIQUES if t in self.techniques],
            tried=[[t for t in TECHNIQUES if t in techniques] for techniques in self.tried],
            shortfall=describe_missed(result),
            options=self.options,
        )

    def to_text(self) -> str:
        """Return the result as text."""
        result, space = self.result, self.space
        before, held = result.baseline_peak_bytes[space], result.state_on_host_bytes
        persistent = result.persistent_bytes[space] + held
        verdict = device_verdict(self.techniques, self.tried)
        lines = [
            f"{printable(self.graph.name)} on {format_bytes(self.device_bytes)} usable: {verdict}",
            f"  persistent       {format_bytes(persistent)}   (weights, optimizer state)",
            f"  peak             {format_bytes(before)}   (unmodified program, without persistent)",
            f"  total            {format_bytes(persistent + before)}",
        ]
        if self.techniques:
            after = result.peak_bytes[space]
            lines += [
                f"  planned peak     {format_bytes(after)}, {format_bytes(persistent - held + after)} in total",
                *([f"  on host          {on_host(result)}{_updated(result)}"] if held else []),
                f"  extra time       {percent(result.extra_time)}   ({result.costs} prices)",
                f"  next             {self.next}",
            ]
        elif self.techniques is None:
            lines.append(f"  why not          {describe_missed(result)}")
        return "\n".join(lines)


def code_of_host(host: Host) -> str:
    capacity = "" if host.capacity_bytes is None else f", capacity_bytes={host.capacity_bytes}"
    return f"lowtide.Host(bandwidth_bytes_per_s={host.bandwidth_bytes_per_s!r}{capacity})"


def fit_device(
    program: Program,
    device_bytes: int,
    settings: PlanSettings,
    progress: Report | None = None,
    plan: Callable[[PlanSettings, Report | None], Result] | None = None,
    source: object = None,
    ladder: Sequence[Techniques] | None = None,
    plan_updates: Callable[[PlanSettings, Report | None], Result] | None = None,
) -> DeviceFit:
    """Find the cheapest techniques with which a program fits a device, persistent buffers included.

    Tries the sets of techniques in `ladder`, by default those of `ladder_for`; ignores the budget and the techniques of
    the settings. If one fits that puts state on the host and rounding is allowed, updates there are tried, and taken if
    they cost less. `plan` replaces `plan_best_form`, whose errors are raised; `plan_updates` is used for updates on the
    host. Sets that lower bounds exclude count as tried. If these are all, the plan of lowest peak without offload is
    still searched.
    """
    report, find = progress or current_report(), plan or partial(plan_best_form, program)
    first, *others = ladder_for(program, settings) if ladder is None else ladder
    excluded: list[Techniques] = []

    def tried_with(techniques: Techniques) -> Result:
        report(f"trying {listed(techniques)}")
        return find(replace(settings, budget=device_bytes, techniques=techniques), progress)

    results = {first: tried_with(first)}
    result = results[first]
    for techniques in others:
        if result.shortfall is None or result.status == "interrupted":
            break
        if cannot_fit(program, replace(settings, budget=device_bytes, techniques=techniques)):
            excluded.append(techniques)
        elif not _is_far(program, techniques, results, excluded):
            result = results[techniques] = tried_with(techniques)
    if result.shortfall is not None and excluded and not any(tried & NEED_BUDGET for tried in results):
        lowest = [tried for tried in excluded if "offload" not in tried][-1:] or excluded[:1]
        results[lowest[0]] = tried_with(lowest[0])
    result = min(reversed(results.values()), key=_missed_bytes)
    rounds = tuple(results)[-1] | {ROUNDING}
    may_round = rounds in others and rounds not in results and result.state_on_host_bytes and _updates_on_host(program)
    if may_round and result.status != "interrupted":
        report("trying updates on the host")
        find_updates = plan_updates or find
        rounded = find_updates(replace(settings, budget=device_bytes, techniques=rounds), progress)
        if rounded.shortfall is None and rounded.extra_time < result.extra_time:
            result = results[rounds] = rounded
    fitting = None if result.shortfall is not None else tuple(results)[-1]
    return DeviceFit(
        graph=result.graph,
        device_bytes=device_bytes,
        result=result,
        techniques=fitting,
        tried=tuple(each for each in dict.fromkeys((first, *others, rounds)) if each in results or each in excluded),
        source=str(source) if isinstance(source, str | Path) else None,
        host=settings.host,
    )


def _updates_on_host(program: Program) -> bool:
    return program.with_state_on_host(program.most_on_host, "host") is not None


def _updated(result: Result) -> str:
    there = result.updated_on_host_bytes
    return f", {format_bytes(there)} of it updated there, equal up to rounding" if there else ""


def _is_far(
    program: Program, techniques: Techniques, results: Mapping[Techniques, Result], excluded: Sequence[Techniques]
) -> bool:
    """Return whether chunks and offload were tried, and chunks miss more bytes than offload moves.

    Plans with both take long, so they are then left out.
    """
    in_chunks = results.get(techniques - {"offload"})
    if in_chunks is None or techniques - {ROUNDING} not in (*results, *excluded):
        return False
    moved = program.with_state_on_host(program.most_on_host)
    space = in_chunks.graph.spaces[0].name
    kept = program.graph if moved is None else moved.graph
    return _missed_bytes(in_chunks) > program.graph.persistent_bytes()[space] - kept.persistent_bytes()[space]


def _missed_bytes(result: Result) -> int:
    return 0 if result.shortfall is None else max(1, result.shortfall.missed_bytes)


def ladder_for(program: Program, settings: PlanSettings, allow: Techniques | None = None) -> list[Techniques]:
    """Return the sets of techniques to try, cheapest first.

    These are: none, techniques without extra time, recomputation, chunks (equal up to rounding) if the program has
    them, and offload if there is a host. `allow` restricts them, and allows chunks wherever they may cost less than
    recomputation. Raises UsageError for techniques without effect.
    """
    without: dict[str, tuple[str, str]] = {}
    if settings.host is None:
        without["offload"] = ("there is no host", "give the bandwidth of the host")
    if not program.has_rounded_forms and not _updates_on_host(program):
        without[ROUNDING] = (f"chunks of {program.graph.name!r} are always bit-equal", "it is for programs of PyTorch")
    for technique, reasons in without.items():
        refuse_ignored(allow or (), {technique}, *reasons)
    allowed = (frozenset(TECHNIQUES) if allow is None else allow).difference(without)
    chunks = frozenset[str]() if allow is None else allowed & {ROUNDING}
    with_copies = COST_NOTHING | {"recompute", "offload"}
    ladder = [
        frozenset[str](),
        COST_NOTHING,
        COST_NOTHING | {"recompute"} | chunks,
        COST_NOTHING | {"recompute", *([ROUNDING] if program.has_rounded_forms else [])},
        with_copies | chunks,
        with_copies | {ROUNDING},
    ]
    return list(dict.fromkeys(rung & allowed for rung in ladder))
