"""A module scheduled as XLA does it, and better: its three schedulers, the search, and the peaks recorded."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.engine.plan import Plan
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.xla.apply import scheduled
from lowtide.frameworks.xla.reading.module import ReadModule
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.scan import end_of_group

RECORDED = ("xla-list", "xla-dfs", "xla-postorder")
"""The orders whose peaks are recorded, as XLA does with its own."""
_FRONTEND = re.compile(r"\bfrontend_attributes=(?=\{)")
_PEAK = re.compile(r'\blowtide_(\w+)_peak_bytes="(\d{1,19})"')
_NAME = re.compile(r"^(\s*HloModule\s+[^\s,]+(?:,\s*is_scheduled=true)?)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ScheduledModule:
    """A module in the best order that was found."""

    module: HloModule
    """Marked as scheduled, with the recorded peaks in its header."""
    plan: Plan
    scheduler: str
    """Whose order it is."""
    peaks: Mapping[str, int]
    """Peak of every order that was tried, in the first memory space, by scheduler."""


def schedule(read: ReadModule, effort: EffortName = DEFAULT_EFFORT) -> ScheduledModule:
    """Schedule every computation, callees first, and return the module in the best of all orders tried.

    Tried are the given order, XLA's list, depth-first and post-order, and the search; the earlier of equals is kept, so
    that the result is never worse than the given order. In-place pairs are taken. Complexity: that of the search.
    """
    names = ("given", *RECORDED, "search")
    tried = [make_candidate(name, read.graph, in_place=True, effort=effort) for name in names]
    best = min(tried, key=lambda candidate: candidate.key)
    space = read.graph.spaces[0].name
    peaks = {candidate.scheduler: candidate.plan.peak_bytes[space] for candidate in tried}
    module = record_peaks(scheduled(read, best.plan), {name: peaks[name] for name in RECORDED})
    return ScheduledModule(module=module, plan=best.plan, scheduler=best.scheduler, peaks=peaks)


def record_peaks(module: HloModule, peaks: Mapping[str, int]) -> HloModule:
    """Return a module whose header holds peaks by scheduler, among its frontend attributes."""
    entries = ",".join(f'lowtide_{name.replace("-", "_")}_peak_bytes="{peak}"' for name, peak in peaks.items())
    header = _without_peaks(module.header)
    found = _FRONTEND.search(header)
    if found is None:
        return replace(module, header=_NAME.sub(rf"\1, frontend_attributes={{{entries}}}", header, count=1))
    end = end_of_group(header, found.end())
    comma = "," if header[found.end() + 1 : end - 1].strip() else ""
    return replace(module, header=f"{header[: end - 1]}{comma}{entries}{header[end - 1 :]}")


def recorded_peaks(module: HloModule) -> dict[str, int]:
    """Return the peaks that `record_peaks` has left in a module, by scheduler; empty where there are none."""
    text = module.attributes.get("frontend_attributes", "")
    return {name.replace("_", "-"): int(peak) for name, peak in _PEAK.findall(text)}


def _without_peaks(header: str) -> str:
    bare = re.sub(rf",?{_PEAK.pattern}", "", header)
    return bare.replace(", frontend_attributes={}", "") if bare != header else header
