"""The best plan so far, on disk while a long search runs: a killed command loses little."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from lowtide.core.errors import WriteError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, write_plan_file
from lowtide.engine.planning.draft import Keep

_ENDINGS = (".plan.json.gz", ".plan.json")


@contextmanager
def kept_beside(output: Path | None) -> Generator[Keep]:
    """Yield what writes the best plan so far to `NAME.so-far.plan.json` beside an output, or nowhere without one.

    The file goes once the result is written; where an error or an interrupt comes first, it stays. A place that cannot
    be written is no reason to end the search.
    """
    path = None if output is None else output.with_name(f"{_stem(output)}.so-far.plan.json")

    def keep(graph: Graph, plan: Plan) -> None:
        if path is not None:
            with suppress(WriteError):
                write_plan_file(plan, path, graph)

    yield keep
    if path is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _stem(output: Path) -> str:
    for ending in _ENDINGS:
        if output.name.endswith(ending):
            return output.name.removesuffix(ending)
    return output.name
