"""Milliseconds of an edit in a session: change the graph, evaluate the order, bound its worst op anew."""

import time
from collections.abc import Callable

import numpy as np
from generate import training_step
from results import write_section

from lowtide.analysis import Problem
from lowtide.graph.edit import NewOp
from lowtide.schedule import scheduler
from lowtide.search import Session

N_OPS = 5_000
EDITS = 200


def milliseconds(session: Session, edit: Callable[[int], None]) -> list[float]:
    """Return what every edit took, sorted; each is undone before the next."""
    taken: list[float] = []
    for number in range(EDITS):
        state = session.state()
        started = time.perf_counter()
        edit(number)
        worst = session.worst_op()
        assert worst is not None
        session.bound(worst)
        taken.append((time.perf_counter() - started) * 1e3)
        session.restore(state)
    return sorted(taken)


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    graph = training_step(N_OPS, checkpointed=True)
    session = Session(graph, scheduler("xla-dfs").order(Problem(graph)))
    rng = np.random.default_rng(0)
    picks = rng.choice(graph.n_ops, size=(EDITS, 2)).tolist()

    writers = np.flatnonzero(np.diff(graph.structure.allocates.offsets))

    def recompute(number: int) -> None:
        """Run an op a second time right before the last user of its result, which reads the new copy."""
        op = int(writers[number * len(writers) // EDITS])
        buffer = int(graph.structure.allocates[op][0])
        user = int(graph.structure.users[buffer][-1])
        copy = session.add_buffer("copy", int(graph.sizes[buffer]))
        session.add_op(NewOp(name="again", kind="again", reads=graph.reads[op].tolist(), writes=[copy]), before=user)
        session.replace_read(user, buffer, copy)

    def wait(number: int) -> None:
        """Add a control edge along the order."""
        first, second = sorted(picks[number], key=session.order.tolist().index)
        session.add_edge(first, second)

    def remove(number: int) -> None:
        """Remove an update, which nothing waits for."""
        session.remove_op(graph.n_ops - 1 - number)

    lines = [f"{graph.name}, {graph.n_ops:,} ops; {EDITS} edits of a kind, each with a new evaluation and bound.", ""]
    lines += ["| edit | median, ms | slowest, ms |", "|---|--:|--:|"]
    edits = {"an op added, a read redirected": recompute, "an edge added": wait, "an op removed": remove}
    for name, edit in edits.items():
        taken = milliseconds(session, edit)
        lines.append(f"| {name} | {taken[len(taken) // 2]:.2f} | {taken[-1]:.2f} |")
    print("\n".join(lines))
    write_section("Edits in a session", "python benchmarks/bench_edits.py", "\n".join(lines))


if __name__ == "__main__":
    main()
