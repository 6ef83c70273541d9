"""The search for the largest size, on programs that need no framework."""

from lowtide.api.step_captures import Captures
from lowtide.api.step_sizes import SizeSearch
from lowtide.api.targets import target_of
from lowtide.core.progress import silent
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.offload import Host
from lowtide.engine.planning.program import FormName
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
        return Step(graph=graph, batch=size, sequence=None, longest=None, settings="", code=(), parts=(), call="*batch")


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


def test_a_size_that_fits_in_chunks_only_has_its_form_and_its_techniques() -> None:
    """At 1,500 rows, recomputation needs 1.5 MiB; half of the rows at once need half of that."""

    def in_chunks(size: int, form: FormName) -> Graph | None:
        return _program(size // 2) if form == "in chunks" else None

    settings = PlanSettings(effort="fast", costs="eager", addresses=False)
    captures = Captures(_Counted(), in_chunks=in_chunks)
    (row,) = SizeSearch(captures, target_of(DEVICE), settings, silent).rows("batch", [1500])
    assert (row.level, row.fit.techniques) == ("chunks", {"reorder", "share", "recompute", "rounding"})
    assert row.total_bytes > DEVICE >= row.planned_bytes
    assert "fits: in chunks, +" in row.to_text()
    exact = SizeSearch(captures, target_of(DEVICE), settings, silent, frozenset({"reorder", "recompute"}))
    assert exact.fit(1500).level is None


def _step_with_state(_: int) -> Step:
    """A weight of 128 KiB in each of 4 layers, with moments of 256 KiB: 1.5 MiB without anything else."""
    builder = GraphBuilder("step")
    x = builder.add_buffer("x", KIB, Lifetime.INPUT)
    for layer in range(4):
        weight = builder.add_buffer(f"weight{layer}", 128 * KIB, Lifetime.PERSISTENT)
        moment = builder.add_buffer(f"moment{layer}", 256 * KIB, Lifetime.PERSISTENT)
        gradient = builder.add_buffer(f"gradient{layer}", 128 * KIB)
        builder.add_op(f"backward{layer}", "mm", reads=[x, weight], writes=[gradient])
        builder.add_op(f"update{layer}", "adam", reads=[gradient, weight, moment], mutates=[weight, moment])
    return Step(
        graph=builder.build(), batch=1, sequence=None, longest=None, settings="", code=(), parts=(), call="*batch"
    )


def test_a_step_fits_with_its_state_on_the_host() -> None:
    """The row names the bytes on the host; the unmodified step and the planned one count all that is on the device."""
    host = Host(bandwidth_bytes_per_s=1e9)
    settings = PlanSettings(effort="fast", costs="eager", addresses=False, host=host)
    search = SizeSearch(Captures(_step_with_state), target_of(DEVICE), settings, silent)
    (row,) = search.rows("batch", [1])
    held = row.fit.result.state_on_host_bytes
    assert row.level == "offload"
    assert held == 3 * 256 * KIB
    assert row.persistent_bytes == 4 * 384 * KIB
    assert row.total_bytes > DEVICE >= row.planned_bytes
    assert "fits: 768.0 KiB on host, +" in row.to_text()
    assert row.to_json()["state_on_host_bytes"] == held


def test_updates_run_on_the_host_where_that_costs_less() -> None:
    """With fast memory, every update; with slow memory, none. The table then says that results may be rounded."""
    found: list[int] = []
    for speed in (1e6, 1e12):
        host = Host(bandwidth_bytes_per_s=1e9, memory_bytes_per_s=speed)
        settings = PlanSettings(effort="fast", costs="eager", addresses=False, host=host)
        search = SizeSearch(Captures(_step_with_state), target_of(DEVICE), settings, silent)
        (row,) = search.rows("batch", [1])
        found.append(row.fit.result.updated_on_host_bytes)
        assert row.fit.result.to_rounding == ("rounding" in (row.fit.techniques or ())) == (found[-1] > 0)
        assert row.to_json()["updated_on_host_bytes"] == found[-1]
    assert found == [0, 3 * 256 * KIB]


def test_a_size_whose_lower_bound_exceeds_the_device_is_searched_once() -> None:
    """At 2,048 rows, one op alone needs 2 MiB. The row names all techniques as tried, and shows the lowest peak."""
    search = _search(_Counted())
    (row,) = search.rows("batch", [2048])
    assert row.level is None
    assert row.planned_bytes >= 2 * DEVICE
    recompute = frozenset({"reorder", "share", "recompute"})
    assert row.fit.tried == (frozenset(), {"reorder", "share"}, recompute, recompute | {"rounding"})
    assert search.techniques(2048, "recompute") is None


def test_the_first_plan_that_fits_answers_as_the_search_for_the_best() -> None:
    for size in (600, 1000, 1023, 1024, 1200):
        searched = _search(_Counted())
        used = searched.techniques(size, "recompute")
        assert (used is None) == (searched.fit(size, "recompute").level is None)
