"""The search for the largest size, on programs that need no framework."""

from lowtide.api.step_sizes import Captures, SizeSearch
from lowtide.api.targets import target_of
from lowtide.core.progress import silent
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.training_steps import Step

KIB = 2**10
DEVICE = 2**20


def _program(rows: int) -> Graph:
    """Two tensors are alive together, 1.5 KiB a row, or 1 KiB if the first is computed again."""
    builder = GraphBuilder("rows")
    x = builder.add_buffer("x", 1, Lifetime.INPUT)
    first, second = (builder.add_buffer(name, rows * KIB // 2) for name in ("first", "second"))
    middle, small = builder.add_buffer("middle", 1), builder.add_buffer("small", 1)
    large = builder.add_buffer("large", rows * KIB)
    out = builder.add_buffer("out", 1, Lifetime.OUTPUT)
    builder.add_op("begin", "tanh", reads=[x], writes=[first])
    builder.add_op("narrow", "sum", reads=[first], writes=[middle])
    builder.add_op("grow", "mm", reads=[middle], writes=[large])
    builder.add_op("shrink", "sum", reads=[large], writes=[small])
    builder.add_op("use", "mul", reads=[first, small], writes=[second])
    builder.add_op("end", "sum", reads=[second], writes=[out])
    return builder.build()


class _Counted:
    """Captures of a program, counted."""

    def __init__(self, *, changes_at: int = 10**9) -> None:
        self.sizes: list[int] = []
        self._changes_at = changes_at

    def __call__(self, size: int) -> Step:
        self.sizes.append(size)
        graph = _program(size if size < self._changes_at else 2 * size)
        return Step(graph=graph, batch=size, sequence=None, longest=None, settings="", code=(), parts="", call="*batch")


def _search(captured: _Counted) -> SizeSearch:
    settings = PlanSettings(effort="fast", costs="eager", addresses=False)
    return SizeSearch(Captures(captured), target_of(DEVICE), settings, silent)


def test_the_largest_sizes_are_those_whose_bytes_fit() -> None:
    """Unmodified, a row needs 1.5 KiB; with recomputation 1 KiB, less a few bytes."""
    captured = _Counted()
    search = _search(captured)
    rows = search.rows("batch", [2**power for power in range(12)])
    assert [row.size for row in rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert search.largest(rows, 1) == {"unchanged": DEVICE * 2 // 3 // KIB, "recompute": DEVICE // KIB - 1}
    assert captured.sizes == [1, 2, 4, 512]


def test_a_program_that_changes_with_its_size_is_captured_at_every_size() -> None:
    captured = _Counted(changes_at=64)
    rows = _search(captured).rows("batch", [2**power for power in range(12)])
    assert [row.size for row in rows if row.level is not None][-1] == 256
    assert set(captured.sizes) >= {8, 16, 32, 64, 128, 256, 512}
