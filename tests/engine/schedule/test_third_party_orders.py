"""Invalid orders of third parties are refused before a kernel uses them."""

import sys
import types
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder
from lowtide.engine.schedule import scheduler, table
from lowtide.engine.search.uncross import close_order


class Backward:
    """A scheduler that reverses the order."""

    def order(self, problem: Problem) -> np.ndarray:
        return problem.given_order()[::-1].copy()


class Short:
    """A scheduler that drops ops."""

    def order(self, problem: Problem) -> np.ndarray:
        return problem.given_order()[:1]


def _chain() -> Problem:
    builder = GraphBuilder("chain")
    buffers = [builder.add_buffer(f"b{k}", 4) for k in range(3)]
    for k in range(3):
        builder.add_op(f"op{k}", "op", reads=buffers[k - 1 : k] if k else [], writes=[buffers[k]])
    return Problem(builder.build())


@pytest.mark.parametrize("name", ["Backward", "Short"])
def test_the_search_refuses_a_wrong_order_of_a_third_party_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    offered = EntryPoints([EntryPoint("acme", f"acme_orders:{name}", table.ENTRY_POINT_GROUP)])
    monkeypatch.setattr(table, "entry_points", lambda group: offered.select(group=group))
    module = types.ModuleType("acme_orders")
    vars(module).update(Backward=Backward, Short=Short)
    monkeypatch.setitem(sys.modules, "acme_orders", module)
    with pytest.raises(UsageError, match="scheduler 'acme' gives no valid order"):
        scheduler("search").order(_chain())


@pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 7], [0, -1, 2], [0, 1]])
def test_kernels_refuse_orders_without_every_op_once(order: list[int]) -> None:
    with pytest.raises(ValueError, match="every op once"):
        _chain().evaluate(np.array(order, np.int32))


def test_a_kernel_that_replays_an_order_refuses_a_wrong_one() -> None:
    with pytest.raises(ValueError, match="after its predecessors"):
        close_order(_chain(), np.array([2, 1, 0], np.int32))
