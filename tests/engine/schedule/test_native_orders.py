"""Guarantees of the native order kernels."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder

NAMES = st.lists(st.text(st.characters(codec="utf-8")), unique=True) | st.lists(
    st.builds("layer.{}".format, st.text("01\0é", max_size=12)), unique=True
)


@given(names=NAMES)
def test_name_ranks_are_the_places_in_sorted_order(names: list[str]) -> None:
    places = {name: place for place, name in enumerate(sorted(names))}
    assert _native.name_ranks(names).tolist() == [places[name] for name in names]


@pytest.mark.parametrize(
    "call",
    [
        lambda view: _native.mesh_list(view, np.zeros(2, np.int32)),
        lambda view: _native.xla_dfs(view, np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(3, np.int32)),
        lambda view: _native.xla_dfs(view, np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(1, np.int32)),
        lambda view: _native.xla_postorder(view, np.zeros(3, np.int64), np.zeros(0, np.int32)),
    ],
)
def test_arrays_of_another_length_are_refused(call: Callable[[_native.GraphView], object]) -> None:
    builder = GraphBuilder("one op")
    builder.add_op("only", "op")
    graph = builder.build()
    good = Problem(graph).native
    with pytest.raises(ValueError, match="must hold one"):
        call(good)
