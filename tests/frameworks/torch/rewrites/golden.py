"""The graphs before and after each rewrite, as text. Run this module to write the files."""

from pathlib import Path

from torch.fx import GraphModule

from lowtide.frameworks.torch.reading.lowering import lower
from lowtide.frameworks.torch.reading.read import graph_of
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import REWRITES
from tests.frameworks.torch.rewrites.examples import example, lifetimes
from tests.oracles.graph_text import format_graph

_FOLDER = Path(__file__).parents[3] / "golden" / "rewrites"


def golden_path(name: str) -> Path:
    """Return the file of a rewrite."""
    return _FOLDER / f"{name}.txt"


def golden_text(name: str) -> str:
    """Return the example program of a rewrite before and after it, as text of a graph."""
    given = example(name)
    before = _text("before", given.module)
    return f"{before}\n{_text('after', run_rewrites(given.module, [given.rewrite]))}"


def _text(name: str, module: GraphModule) -> str:
    return format_graph(graph_of(name, module, lower(module, lifetimes(module))))


if __name__ == "__main__":
    for each in REWRITES:
        golden_path(each).write_text(golden_text(each), encoding="utf-8")
