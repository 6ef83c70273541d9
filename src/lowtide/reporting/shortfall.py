"""Sentences for shortfalls: why a plan misses its budget, and the lowest peak reached."""

import math

from lowtide.core.units import ByteUnit, format_bytes
from lowtide.engine.analysis.folding import named_largest
from lowtide.engine.analysis.shortfall import Shortfall
from lowtide.engine.planning.result import Result


def describe(shortfall: Shortfall) -> str:
    """Return the reason why a plan misses its budget or capacity, in one sentence."""
    allowed, reached = shortfall.allowed_bytes, shortfall.reached_bytes
    unit = ByteUnit(reached, shortfall.needed_bytes or 0)
    limit = f"the {unit.write(max(allowed, 0))} that {shortfall.limited_by} leaves"
    missed = unit.write(shortfall.missed_bytes)
    found = f"the best plan found needs {unit.write(reached)} in {shortfall.space}, {missed} more than {limit}"
    needed = 0 if shortfall.needed_bytes is None else shortfall.needed_bytes
    more = f"{unit.write(needed)} in {shortfall.space}, {unit.write(needed - allowed)} more than {limit}"
    live = f"; live then: {named_largest(shortfall.holders, unit)}" if shortfall.holders else ""
    shown = "" if shortfall.claim is None else f" ({shortfall.claim.sentence})"
    match shortfall.cause:
        case "persistent buffers":
            return (
                f"persistent buffers need {unit.write(needed)} in {shortfall.space}, {unit.write(-allowed)} more than "
                f"{shortfall.limited_by} allows; the best plan found needs another {unit.write(reached)}"
            )
        case "inputs and outputs":
            return f"inputs and outputs alone need {more}{shown}{live}"
        case "op" if shortfall.op_bytes is not None and shortfall.op_bytes >= needed:
            return f"op {shortfall.op} alone needs {more}{shown}{live}"
        case "op":
            own = "" if shortfall.op_bytes is None else f" ({unit.write(shortfall.op_bytes)} of its own)"
            return f"the tensors live during op {shortfall.op}{own} need {more}{shown}{live}"
        case "operands of an op":
            return f"computing all operands of op {shortfall.op} needs {more}{shown or ', even with recomputation'}"
        case "every order" | "every plan":
            return f"{shortfall.cause} needs at least {more}{shown}"
        case "base order":
            return f"{found}; proven impossible for first runs in order {shortfall.base_order}"
        case "plan file":
            return f"the plan in {shortfall.source} is marked as over its budget"
        case "not found":
            return f"{found}; not proven impossible"


def describe_missed(result: Result) -> str:
    """Return why a result misses its budget, and the lowest peak reached; empty if it meets the budget."""
    if result.shortfall is None:
        return ""
    return f"{describe(result.shortfall)}; {lowest_peak(result)}"


def lowest_peak(result: Result) -> str:
    """Return the lowest peak reached, in bytes and as a share of the baseline."""
    over = [name for name, most in result.budget.allowed.items() if most is not None and result.peak_bytes[name] > most]
    space = (over or list(result.peak_bytes))[0]
    reached, before = result.peak_bytes[space], result.baseline_peak_bytes[space]
    share = f", {math.ceil(reached * 10_000 / before) / 100:.2f}% of the baseline" if before else ""
    return f"the lowest peak reached is {format_bytes(reached)}{share}"
