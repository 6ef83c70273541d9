"""Exhaustive search for an order within a budget, in plain Python."""

from enum import Enum

from lowtide.engine.search.plain_program import PlainProgram


class PlainFit(Enum):
    """What exhaustive search can say about a budget."""

    SOME_ORDER_FITS = "some order fits"
    NO_ORDER_FITS = "no order fits"
    TOO_MUCH_WORK = "too much work to tell"


def plain_fit(program: PlainProgram, budget_bytes: int, most_looks: int) -> PlainFit:
    """Say whether some order stays within a budget, trying each set of executed ops once.

    Gives up after about `most_looks` looks at an op.
    The one shortcut: an op that fits and leaves no more bytes live than before runs at once. The more has run, the less
    an op adds to what is live, so that whatever runs after it finds no more bytes live than without it; and it takes no
    in-place pair away, since those need others to have run.
    """
    if program.at_the_edges() > budget_bytes:
        return PlainFit.NO_ORDER_FITS
    everything = (1 << program.n_ops) - 1
    seen: set[int] = set()
    looks = 0
    waiting = [(0, program.live_at_start(unused=False))]
    while waiting:
        executed, live, passes = _run_what_is_safe(program, *waiting.pop(), budget_bytes)
        looks += passes * program.n_ops
        if executed == everything:
            return PlainFit.SOME_ORDER_FITS
        if executed in seen:
            continue
        seen.add(executed)
        looks += program.n_ops
        if looks > most_looks:
            return PlainFit.TOO_MUCH_WORK
        for op in range(program.n_ops):
            if program.may_run(op, executed):
                more, net = program.run(op, executed)
                if live + more <= budget_bytes:
                    waiting.append((executed | 1 << op, live + net))
    return PlainFit.NO_ORDER_FITS


def _run_what_is_safe(program: PlainProgram, executed: int, live: int, budget_bytes: int) -> tuple[int, int, int]:
    """Return the executed set, its live bytes, and how often all ops were looked at."""
    passes = 0
    changed = True
    while changed:
        changed = False
        passes += 1
        for op in range(program.n_ops):
            if program.may_run(op, executed):
                more, net = program.run(op, executed)
                if net <= 0 and live + more <= budget_bytes:
                    executed, live, changed = executed | 1 << op, live + net, True
    return executed, live, passes
