"""Compare native orders with slow ones that follow the definition of each rule."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import Problem
from lowtide.engine.schedule import scheduler
from lowtide.engine.schedule.mesh_list import MeshList
from tests.examples import examples
from tests.oracles.depth_first import xla_dfs, xla_postorder
from tests.oracles.longest_path import longest_path
from tests.oracles.memonger_longest_path import memonger_longest_path
from tests.oracles.mesh_list import mesh_list
from tests.oracles.mesh_list_with_defects import mesh_list_with_defects
from tests.oracles.random_graphs import random_graph
from tests.oracles.xla_list import xla_list


def memonger_or_merged(problem: Problem) -> list[int]:
    """Return memonger's order, or that of merged paths if memonger fails."""
    found = memonger_longest_path(problem)
    return longest_path(problem) if found is None else found


TWINS: dict[str, Callable[[Problem], list[int]]] = {
    "mesh-list": mesh_list,
    "xla-list": xla_list,
    "xla-dfs": xla_dfs,
    "xla-postorder": xla_postorder,
    "longest-path": memonger_or_merged,
    "longest-path-merged": longest_path,
}


@examples(300)
@given(seed=st.integers(0, 10**9))
def test_the_native_order_with_mesh_tensorflows_defects_equals_its_twin(seed: int) -> None:
    problem = Problem(random_graph(seed))
    assert MeshList(original=True).order(problem).tolist() == mesh_list_with_defects(problem)


@pytest.mark.parametrize("name", TWINS)
@examples(300)
@given(seed=st.integers(0, 10**9))
def test_native_order_equals_its_twin(name: str, seed: int) -> None:
    problem = Problem(random_graph(seed))
    assert scheduler(name).order(problem).tolist() == TWINS[name](problem)
