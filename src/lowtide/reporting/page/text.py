"""A report as text."""

from textwrap import wrap

from lowtide.core.units import format_by_space, format_bytes, percent
from lowtide.reporting.claims import caption
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.shortfall import short_verdict
from lowtide.reporting.table import format_ratio, page_width, printable, shortened

_MOST_HOLDERS = 15
_MOST_ACTIONS = 8


def to_text(facts: Facts) -> str:
    graph, plan, actions = facts.graph, facts.plan, facts.actions
    limits = {space: most for space, most in facts.allowed_bytes.items() if most is not None}
    verdict = short_verdict(plan, is_missed=facts.shortfall is not None)
    opening = facts.picture()
    lines = [
        *_indented(f"{printable(opening.sentence)}.", 0),
        "",
        *opening.lines(page_width()),
        "",
        f"{printable(graph.name)}: {graph.n_ops} ops, {graph.n_buffers} buffers, {verdict}",
        f"  before       {format_by_space(facts.baseline_peak_bytes)}",
        f"  after        {format_by_space(facts.peak_bytes)}   "
        f"({format_ratio(facts.peak_bytes, facts.baseline_peak_bytes)} of before)",
    ]
    if plan.lower_bound_bytes:
        lines += [f"  lower bound  {format_by_space(plan.lower_bound_bytes)}", *_indented(caption(plan.claims), 15)]
    if limits:
        met = all(facts.peak_bytes[space] <= most for space, most in limits.items())
        lines.append(f"  budget       {format_by_space(limits)}: {'met' if met else 'missed'}")
    if facts.shortfall is not None:
        lines += _indented(facts.shortfall, 15)
    if plan.arena_bytes:
        lines.append(f"  arena        {format_by_space(plan.arena_bytes)}   (with addresses)")
    lines.append(f"  persistent   {format_by_space(graph.persistent_bytes())}   (not included above)")
    if facts.extra_time:
        lines.append(f"  extra time   {percent(facts.extra_time, signed=True)}   ({facts.prices.profile} prices)")
    if facts.measured is not None:
        measured = facts.measured
        lines.append(
            f"  measured     {format_bytes(measured.before_bytes)} before, {format_bytes(measured.after_bytes)} after, "
            f"outputs {measured.in_short()}"
        )
    for space in range(1, len(graph.spaces)):
        lines += ["", *facts.picture(space).lines(page_width())]
    lines += ["", "At the peak:"]
    for each in facts.holders[:_MOST_HOLDERS]:
        first = each.first
        why = ", ".join(map(printable, first.kept_alive_by))
        lines.append(_cut(f"  {format_bytes(each.size_bytes):>10}  {printable(each.label)}  <- {why}"))
    rest = facts.holders[_MOST_HOLDERS:]
    if rest:
        together = format_bytes(sum(each.size_bytes for each in rest))
        lines.append(f"  {together:>10}  in {sum(len(each.holders) for each in rest)} more")
    lines += ["", "Changes:"]
    lines.append(f"  {len(actions.moved)} of {graph.n_ops} ops moved")
    lines.append(f"  {len(actions.shared)} buffers computed in place")
    if facts.in_chunks:
        lines.append("  largest tensors computed in chunks")
    if actions.reruns:
        runs = sum(row.times for row in actions.reruns)
        lines.append(f"  {runs} recomputed runs")
        lines += [
            _cut(f"  {format_bytes(row.writes_bytes):>10}  {printable(row.op)}, {row.times} more")
            for row in actions.reruns[:_MOST_ACTIONS]
        ]
    if actions.copied:
        lines.append(f"  {len(actions.copied)} buffers offloaded, {format_bytes(actions.transfers.bytes_out)}")
        lines += [
            _cut(f"  {format_bytes(row.size_bytes):>10}  {printable(row.buffer)} to {printable(row.to)}")
            for row in actions.copied[:_MOST_ACTIONS]
        ]
    lines += ["", "Not modeled:" if graph.unmodeled else "Not modeled: nothing"]
    for sentence in graph.unmodeled:
        lines += _indented(printable(sentence), 2)
    return "\n".join(lines)


def _indented(text: str, by: int) -> list[str]:
    return wrap(text, page_width(), initial_indent=" " * by, subsequent_indent=" " * by)


def _cut(line: str) -> str:
    return shortened(line, page_width())
