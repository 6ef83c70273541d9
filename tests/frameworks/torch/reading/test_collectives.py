"""Collectives: operands stay alive until the wait, which returns the result."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives

import lowtide
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Plan
from lowtide.torch import TorchModel

KIB = 1024
ELEMENTS = 256 * KIB  # 1 MiB of float32


@pytest.fixture(scope="module", autouse=True)
def one_rank() -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _summed(x: torch.Tensor) -> torch.Tensor:
    sent = x * 1.5
    total = collectives.all_reduce(sent, "sum", dist.group.WORLD)
    return total.sin().sum()


def _overlapped(x: torch.Tensor) -> torch.Tensor:
    """Return a sum with an op between the collective and its wait."""
    total = torch.ops._c10d_functional.all_reduce(x * 1.5, "sum", dist.group.WORLD.group_name)
    meanwhile = x.cos()
    waited = torch.ops._c10d_functional.wait_tensor(total)
    return (waited.view(2, -1).sin().sum() * meanwhile).sum()


@pytest.mark.parametrize(("program", "mib"), [(_summed, 3), (_overlapped, 4)], ids=["summed", "overlapped"])
def test_a_wait_allocates_nothing_and_keeps_operands_alive(program: object, mib: int) -> None:
    """A wait directly after its collective is part of that op; any other wait is a separate op."""
    graph = lowtide.read((program, (torch.randn(ELEMENTS),)))
    waits = [op for op in graph.ops() if op.kind.endswith("wait_tensor")]
    (start,) = [op for op in graph.ops() if op.kind.endswith("all_reduce")]
    assert len(waits) == (program is _overlapped)
    for wait in waits:
        assert not wait.writes
        assert set(wait.reads) == {*start.reads, *start.writes}
        assert wait.mutates == start.writes
    (peak,) = simulate(graph, Plan.baseline(graph)).peak_bytes.values()
    assert peak // (KIB * KIB) == mib


@pytest.mark.parametrize("program", [_summed, _overlapped], ids=["summed", "overlapped"])
def test_the_peak_with_collectives_is_predicted(program: object) -> None:
    """Gloo's thread may hold a number of its own at the peak."""
    model = TorchModel((program, (torch.randn(ELEMENTS),)))
    result = lowtide.minimize(model.graph)
    measured = model.measure(result.plan, timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes == pytest.approx(sum(result.peak_bytes.values()), abs=16)


def test_no_reader_of_a_result_moves_before_the_wait_for_it() -> None:
    graph = lowtide.read((_overlapped, (torch.randn(ELEMENTS),)))
    kinds = [op.kind.split(".")[-1] for op in graph.ops()]
    wait, reader = kinds.index("wait_tensor"), kinds.index("sin")
    assert wait in graph.structure.predecessors[reader]
