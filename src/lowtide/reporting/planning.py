"""What `plan` and `optimize` say: before, after, the bound, and what was measured."""

from lowtide.core.units import ByteUnit
from lowtide.engine.planning.measured import CompiledMemory, Measurement, Rewritten
from lowtide.engine.planning.next_technique import MOST_OPS, NextTechnique
from lowtide.engine.planning.result import Result
from lowtide.reporting.claims import caption, claims_to_json
from lowtide.reporting.fields import LevelFields, MeasuredFields, PlanFields
from lowtide.reporting.shortfall import describe_missed
from lowtide.reporting.table import format_ratio, fragmentation, printable

_NAMES_SHOWN = 5


def result_to_json(result: Result, offer: NextTechnique | None = None) -> PlanFields:
    """Return the fields of the JSON object."""
    return {
        "status": result.status,
        "scheduler": result.scheduler,
        "moved_ops": result.moved_ops,
        "baseline_peak_bytes": result.baseline_peak_bytes,
        "peak_bytes": result.peak_bytes,
        "arena_bytes": result.arena_bytes,
        "arena_lower_bound_bytes": result.arena_lower_bound_bytes,
        "fragmentation_bytes": fragmentation(result.arena_bytes, result.peak_bytes),
        "lower_bound_bytes": result.lower_bound_bytes,
        "persistent_bytes": result.persistent_bytes,
        "extra_cost": result.extra_cost,
        "extra_cost_bound": result.extra_cost_bound,
        "base_cost": result.base_cost,
        "base_order": result.base_order,
        "costs": result.costs,
        "reruns": result.reruns,
        "offloaded_bytes": result.transfers.bytes_out,
        "stall_seconds": result.transfers.stall_seconds,
        "hidden_seconds": result.transfers.hidden_seconds,
        "collective_seconds": result.communication.seconds,
        "exposed_seconds": result.communication.exposed_seconds,
        "claims": claims_to_json(result.claims),
        "seconds": result.seconds,
        "shortfall": describe_missed(result) or None,
        "chunk_cost": result.chunk_cost,
        "left_whole": result.left_whole,
        "to_rounding": result.to_rounding,
        "next_technique": offer,
    }


def measured_to_json(measured: Measurement | None) -> MeasuredFields:
    """Return what was measured, as fields beside those of the result; none where nothing was."""
    if measured is None:
        return {}
    fields: MeasuredFields = {
        "measured_before_bytes": measured.before_bytes,
        "measured_after_bytes": measured.after_bytes,
        "outputs_equal": measured.outputs_equal,
    }
    if measured.largest_difference is not None:
        fields["largest_difference"] = measured.largest_difference
        fields["outputs_near"] = measured.outputs_near
    if measured.original_bytes is not None:
        fields["measured_original_bytes"] = measured.original_bytes
    if measured.host_bytes is not None:
        fields["measured_host_bytes"] = measured.host_bytes
    return fields


def result_to_text(
    name: str, result: Result, measured: Measurement | None = None, offer: NextTechnique | None = None
) -> str:
    """Return the page for people."""
    unit = ByteUnit(result.baseline_peak_bytes, result.persistent_bytes)
    after, before, where = result.peak_bytes, result.baseline_peak_bytes, ""
    if result.transfers.bytes_out:  # what leaves a memory space counts in another one
        space = next(iter(after))
        after, before, where = {space: after[space]}, {space: before[space]}, f" in {printable(space)}"
    ratio = format_ratio(after, before)
    lines = [
        f"{printable(name)}: {result.status}, order {result.scheduler}, planned in {result.seconds:.1f} s",
        f"  baseline peak    {unit.by_space(result.baseline_peak_bytes)}",
        f"  planned peak     {unit.by_space(result.peak_bytes)}   ({ratio} of the baseline{where})",
        f"  lower bound      {unit.by_space(result.lower_bound_bytes)}   ({caption(result.claims)})",
        *_arena(result, unit),
        f"  persistent       {unit.by_space(result.persistent_bytes)}   (apart from all of the above)",
    ]
    if result.graph.unmodeled:
        first, *others = result.graph.unmodeled
        more = f" and {len(others)} more" if others else ""
        lines.append(f"  not modeled      {printable(first)}{more}; see lowtide inspect")
    lines += [f"  not in chunks    {printable(sentence)}" for sentence in result.left_whole]
    if result.to_rounding:
        lines.append("  results          equal to rounding: chunks make sums in another order")
    if result.chunk_cost:
        whole = result.base_cost - result.chunk_cost or 1.0
        lines.append(
            f"  in chunks        {result.chunk_cost / whole:.2%} more time than whole, priced by {result.costs}"
        )
    if result.reruns or result.transfers.bytes_out:
        lines.append(f"  extra cost       {_extra(result)}")
    if result.transfers.bytes_out:
        lines.append(f"  to the host      {_transfers(result, unit)}")
    if result.communication.seconds:
        lines.append(f"  communication    {_communication(result)}")
    if measured is not None:
        lines += [
            f"  measured before  {unit.write(measured.before_bytes)}",
            f"  measured after   {unit.write(measured.after_bytes)}",
            f"  outputs equal    {_outputs(measured)}",
        ]
        if measured.original_bytes is not None:
            lines.insert(-3, f"  measured eager   {unit.write(measured.original_bytes)}   (your own call, unplanned)")
        if measured.host_bytes is not None:
            lines.insert(-1, f"  on the host      {unit.write(measured.host_bytes)}   (measured)")
    limits = {space: most for space, most in result.budget.allowed.items() if most is not None}
    if limits and result.shortfall is None:
        lines.append(f"  budget           {unit.by_space(limits)}: met")
    if result.shortfall is not None:
        lines.append(f"  misses budget    {describe_missed(result)}")
    if offer is not None:
        more = f"{offer.extra_cost / offer.base_cost:.2%} more time" if offer.base_cost else "more time"
        title = "fits with        " if offer.fits else "less yet         "
        lines.append(f"  {title}{unit.write(offer.peak_bytes)} for {more}: {offer.settings}")
    elif after == before and all(most is None for most in result.budget.allowed.values()):
        lines.append(f"  nothing gained   {_why_nothing(result)}")
    return "\n".join(lines)


def _outputs(measured: Measurement) -> str:
    """Say how near results are to those of the program as it stands."""
    if measured.outputs_equal:
        return "yes, bit for bit"
    if measured.largest_difference is None:
        return "NO"
    differ = f"{measured.largest_difference:.1e} of the largest number of a tensor at most"
    return f"to rounding: they differ by {differ}" if measured.outputs_near else f"NO, they differ by {differ}"


def compiled_to_text(compiled: CompiledMemory) -> str:
    """Return what a compiled program takes, by everybody who says so, in lines for people."""
    unit = ByteUnit(compiled.predicted_bytes, compiled.total_bytes)
    lines = [
        f"  compiled, {compiled.name}",
        f"    predicted      {unit.write(compiled.predicted_bytes)}   (the graph's peak, with arguments and results)",
        f"    XLA says       {unit.write(compiled.total_bytes)}   (the same; of it temp_size_in_bytes "
        f"{unit.write(compiled.temp_bytes)})",
    ]
    if compiled.assigned_bytes is not None:
        lines.append(f"    reserved       {unit.write(compiled.assigned_bytes)}   (XLA's buffer assignment)")
    if compiled.resident_bytes is not None:
        called = unit.write(compiled.total_bytes - compiled.argument_bytes)
        taken = unit.write(compiled.resident_bytes)
        lines.append(
            f"    allocated      {taken}   (what a call in a process of its own took from "
            f"the system, of {called} without arguments)"
        )
    return "\n".join(lines)


def _why_nothing(result: Result) -> str:
    """Say why a plan needs what the program needs, and what would help, where nothing that trades time was found."""
    if result.graph.n_ops > MOST_OPS:
        return "--curve shows what running ops again would give, and its price"
    if result.status == "optimal":
        return "no order can do with less, and no rerun was found that helps; what is left is smaller inputs (inspect)"
    return "no better order was found, and no rerun that helps; --effort max looks further"


def _arena(result: Result, unit: ByteUnit) -> list[str]:
    """Return the line of the arena, where buffers got addresses."""
    if not result.arena_bytes:
        return []
    lost = unit.by_space(fragmentation(result.arena_bytes, result.peak_bytes))
    return [f"  arena            {unit.by_space(result.arena_bytes)}   (with addresses; fragmentation {lost})"]


def _extra(result: Result) -> str:
    """Say what the budget costs, and how much less it could be."""
    base = result.base_cost or 1.0
    bound = "" if result.extra_cost_bound is None else f", at least {result.extra_cost_bound / base:.2%}"
    is_of_any = any(claim.figure == "extra cost" and claim.base_order is None for claim in result.claims)
    order = "in any order" if is_of_any else f"for first runs in order {result.base_order}"
    return f"{result.extra_cost / base:.2%}{bound} {order} ({result.reruns} runs again, priced by {result.costs})"


def _transfers(result: Result, unit: ByteUnit) -> str:
    """Say what is copied, and what of that compute notices."""
    base, transfers = result.base_cost or 1.0, result.transfers
    return (
        f"{unit.write(transfers.bytes_out)} and back; copies take {transfers.hidden_seconds / base:.2%} behind "
        f"compute, which waits {transfers.stall_seconds / base:.2%}"
    )


def _communication(result: Result) -> str:
    """Say what collectives take, and what of that computation hides."""
    base, taken = result.base_cost or 1.0, result.communication
    hidden = 1 - taken.exposed_seconds / taken.seconds
    return f"{taken.seconds / base:.2%} of the program's run time, {hidden:.0%} of it behind computation"


def level_to_json(level: str, rewritten: Rewritten) -> LevelFields:
    """Return the fields of the JSON object for a program after a level of its framework's optimizer."""
    return {
        "level": level,
        "before_bytes": rewritten.before_bytes,
        "after_bytes": rewritten.after_bytes,
        "done": rewritten.done,
    }


def level_to_text(level: str, rewritten: Rewritten) -> str:
    """Return the same for people."""
    lines = [f"level {level}, peaks estimated by the framework:"]
    unit = ByteUnit(rewritten.before_bytes, rewritten.after_bytes)
    for device, before in rewritten.before_bytes.items():
        lines.append(f"  {device}: {unit.write(before)} before, {unit.write(rewritten.after_bytes[device])} after")
    for kind, names in rewritten.done.items():
        if names:
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            lines.append(f"  {kind}: {', '.join(names[:_NAMES_SHOWN])}{more}")
    return "\n".join(lines)
