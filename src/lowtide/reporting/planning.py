"""The result of `plan` and `optimize`."""

from lowtide.core.documents import fields_of
from lowtide.core.units import format_by_space, format_bytes, percent
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.planning.measured import CompiledMemory, Measurement, Rewritten
from lowtide.engine.planning.next_technique import MOST_OPS, NextTechnique
from lowtide.engine.planning.result import Result
from lowtide.reporting.claims import caption, claims_to_json
from lowtide.reporting.fields import LevelFields, PlanFields
from lowtide.reporting.on_device import OnDevice
from lowtide.reporting.shortfall import describe_missed, offer_verdict, outcome
from lowtide.reporting.table import format_ratio, fragmentation, printable

_NAMES_SHOWN = 5


def result_to_json(result: Result, offer: NextTechnique | None = None, on_device: OnDevice | None = None) -> PlanFields:
    some = {} if on_device is None else {"on_device": on_device.to_json()}
    return fields_of(
        PlanFields,
        result,
        **some,
        fragmentation_bytes=fragmentation(result.arena_bytes, result.peak_bytes),
        offloaded_bytes=result.transfers.bytes_out,
        stall_seconds=result.transfers.stall_seconds,
        hidden_seconds=result.transfers.hidden_seconds,
        collective_seconds=result.communication.seconds,
        exposed_seconds=result.communication.exposed_seconds,
        claims=claims_to_json(result.claims),
        shortfall=describe_missed(result),
        next_technique=offer,
    )


def result_to_text(result: Result, measured: Measurement | None = None, offer: NextTechnique | None = None) -> str:
    after, before, where = result.peak_bytes, result.baseline_peak_bytes, ""
    if result.transfers.bytes_out:  # offloaded bytes count in another memory space
        space = next(iter(after))
        after, before, where = {space: after[space]}, {space: before[space]}, f" in {printable(space)}"
    ratio = format_ratio(after, before)
    name = printable(result.graph.name)
    lines = [
        f"{name}: {outcome(result)}; order {result.scheduler}, planned in {result.seconds:.1f} s",
        f"  baseline peak    {format_by_space(result.baseline_peak_bytes)}",
        f"  planned peak     {format_by_space(result.peak_bytes)}   ({ratio} of the baseline{where})",
        f"  lower bound      {format_by_space(result.lower_bound_bytes)}   ({caption(result.claims)})",
        *_arena(result),
        f"  persistent       {format_by_space(result.persistent_bytes)}   (not included above)",
    ]
    if result.graph.unmodeled:
        first, *others = result.graph.unmodeled
        more = f" and {len(others)} more" if others else ""
        lines.append(f"  not modeled      {printable(first)}{more}; see lowtide inspect")
    lines += [f"  not chunked      {printable(sentence)}" for sentence in result.left_whole]
    if result.to_rounding:
        why = "updates run on the host" if result.updated_on_host_bytes else "chunks change the order of sums"
        lines.append(f"  results          equal up to rounding ({why})")
    if result.extra_time or result.reruns or result.transfers.bytes_out:
        lines.append(f"  extra time       {_extra(result)}")
    if result.solver_finds_none:
        lines.append(
            f"  unproven         the solver finds no plan that fits with first runs in order {result.base_order}"
        )
    if result.transfers.bytes_out:
        lines.append(f"  offloaded        {_transfers(result)}")
    if result.state_on_host_bytes:
        lines.append(f"  on host          {_state(result)}")
    if result.communication.seconds:
        lines.append(f"  communication    {_communication(result)}")
    if measured is not None:
        lines += [f"  {line}" for line in measured.lines(result.extra_time)]
    limits = {space: most for space, most in result.budget.allowed.items() if most is not None}
    if limits and result.shortfall is None:
        lines.append(f"  budget           {format_by_space(limits)}: met")
    if result.shortfall is not None:
        lines.append(f"  misses budget    {describe_missed(result)}")
    if offer is not None:
        lines.append(f"  recomputation    {offer_verdict(offer, format_bytes(offer.peak_bytes))}")
    elif after == before and all(most is None for most in result.budget.allowed.values()):
        lines.append(f"  no gain          {_why_no_gain(result)}")
    return "\n".join(lines)


def compiled_to_text(compiled: CompiledMemory) -> str:
    lines = [
        f"  compiled, {compiled.name}",
        f"    predicted      {format_bytes(compiled.predicted_bytes)}   (peak of the graph with arguments and results)",
        f"    XLA reports    {format_bytes(compiled.total_bytes)}   (the same; temp_size_in_bytes "
        f"{format_bytes(compiled.temp_bytes)})",
    ]
    if compiled.assigned_bytes is not None:
        lines.append(f"    reserved       {format_bytes(compiled.assigned_bytes)}   (XLA's buffer assignment)")
    if compiled.resident_bytes is not None:
        called = format_bytes(compiled.total_bytes - compiled.argument_bytes)
        allocated = format_bytes(compiled.resident_bytes)
        lines.append(
            f"    allocated      {allocated}   (by one call in a new process; {called} predicted without arguments)"
        )
    return "\n".join(lines)


def _why_no_gain(result: Result) -> str:
    graph = result.graph
    if graph.n_ops > MOST_OPS:
        return "--curve shows the gain and the cost of recomputation"
    if graph.n_ops and graph.ordered.all() and not may_run_twice(graph).any():
        return "ops keep their order and none can be recomputed, so only addresses are planned (see lowtide inspect)"
    if result.status == "optimal":
        return "no order needs less, and no recomputation found helps; use smaller inputs (see lowtide inspect)"
    return "no better order and no useful recomputation found; --effort max searches longer"


def _arena(result: Result) -> list[str]:
    if not result.arena_bytes:
        return []
    lost = format_by_space(fragmentation(result.arena_bytes, result.peak_bytes))
    return [f"  arena            {format_by_space(result.arena_bytes)}   (with addresses; fragmentation {lost})"]


def _extra(result: Result) -> str:
    base = result.unmodified_cost or 1.0
    parts: list[str] = []
    if result.moved_cost > 0 and result.updated_on_host_bytes:
        parts.append(f"updates on the host save {percent(result.moved_cost / base)} on the device")
    if result.chunk_cost:
        parts.append(f"chunks {percent(result.chunk_cost / base, signed=True)}")
    if result.reruns:
        parts.append(f"{result.reruns} recomputed runs")
    proven, claimed = (
        "" if bound is None else percent(bound / base) for bound in (result.extra_cost_bound, result.solver_bound)
    )
    if proven and (result.reruns or result.transfers.bytes_out):
        is_of_any = any(claim.figure == "extra cost" and claim.base_order is None for claim in result.claims)
        order = "in any order" if is_of_any else f"in order {result.base_order}"
        beside = " beside chunks" if result.chunk_cost else ""
        parts.append(f"lower bound{beside} {proven} {order}")
    if claimed and claimed != proven:
        parts.append(f"at least {claimed} by the solver, not proven")
    parts.append(f"{result.costs} prices")
    return f"{percent(result.extra_time, signed=True)}   ({', '.join(parts)})"


def _transfers(result: Result) -> str:
    base, transfers = result.base_cost or 1.0, result.transfers
    return (
        f"{format_bytes(transfers.bytes_out)} to the host and back; copies overlap with "
        f"{percent(transfers.hidden_seconds / base)} of the run time, compute waits "
        f"{percent(transfers.stall_seconds / base)}"
    )


def _state(result: Result) -> str:
    base, transfers = result.base_cost or 1.0, result.transfers
    return f"{on_host(result)}, {_where_updated(result)}; compute waits {percent(transfers.stall_seconds / base)}"


def on_host(result: Result) -> str:
    """Return the bytes of state and parameters on the host."""
    held, parameters = result.state_on_host_bytes, result.parameters_on_host_bytes
    if parameters in (0, held):
        return f"{format_bytes(held)} of {'parameters' if parameters else 'optimizer state'}"
    return f"{format_bytes(held)}, {format_bytes(parameters)} of it parameters"


def _where_updated(result: Result) -> str:
    there, held = result.updated_on_host_bytes, result.state_on_host_bytes
    if not there:
        return f"copied to the device for each {'use' if result.parameters_on_host_bytes else 'update'}"
    return "updated there" if there == held else f"{format_bytes(there)} of it updated there"


def _communication(result: Result) -> str:
    base, collectives = result.base_cost or 1.0, result.communication
    hidden = 1 - collectives.exposed_seconds / collectives.seconds
    return f"{percent(collectives.seconds / base)} of the run time, {percent(hidden)} hidden by computation"


def level_to_json(level: str, rewritten: Rewritten) -> LevelFields:
    return fields_of(LevelFields, rewritten, level=level)


def level_to_text(level: str, rewritten: Rewritten) -> str:
    lines = [f"level {level}, peaks estimated by the framework:"]
    for device, before in rewritten.before_bytes.items():
        lines.append(f"  {device}: {format_bytes(before)} before, {format_bytes(rewritten.after_bytes[device])} after")
    for kind, names in rewritten.done.items():
        if names:
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            lines.append(f"  {kind}: {', '.join(names[:_NAMES_SHOWN])}{more}")
    return "\n".join(lines)
