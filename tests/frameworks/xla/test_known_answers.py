"""Peaks from XLA's own tests, with their modules as HLO text."""

from functools import partial

import pytest

from lowtide.engine.graph import Graph
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.xla.reading.module import read_module
from lowtide.frameworks.xla.schedule import instruction_order
from lowtide.xla import parse_module


def graph_of(text: str, pointer_bytes: int = 8) -> Graph:
    """Read a module with tuples of `pointer_bytes` per element."""
    return read_module(parse_module(text), pointer_bytes=pointer_bytes).graph


def peak(graph: Graph, scheduler: str, *, in_place: bool = False, parameter_bytes: int = 0) -> int:
    """Return the peak of an order without parameters, which XLA's figures leave out."""
    return make_candidate(scheduler, graph, in_place=in_place).plan.peak_bytes["device"] - parameter_bytes


def order(graph: Graph, scheduler: str, *, in_place: bool = False) -> list[str]:
    """Return the names of the ops in a scheduler's order."""
    return [graph.op_names[op] for op in make_candidate(scheduler, graph, in_place=in_place).plan.order()]


MULTI_COMPUTATION = """HloModule MultiComputation

%cond (cond_param: (f32[], f32[])) -> pred[] {
  %cond_param = (f32[], f32[]) parameter(0)
  %cond_iter = f32[] get-tuple-element(%cond_param), index=0
  %cond_data = f32[] get-tuple-element(%cond_param), index=1
  ROOT %cond_lt = pred[] compare(%cond_iter, %cond_data), direction=LT
}

%body (body_param: (f32[], f32[])) -> (f32[], f32[]) {
  ROOT %body_param = (f32[], f32[]) parameter(0)
}

ENTRY %entry (iter: f32[], data: f32[]) -> (f32[], f32[]) {
  %iter = f32[] parameter(0)
  %data = f32[] parameter(1)
  %tuple = (f32[], f32[]) tuple(%iter, %data)
  ROOT %while = (f32[], f32[]) while(%tuple), condition=%cond, body=%body
}
"""

SUBCOMPUTATION = """HloModule SubcomputationAccounting

%body (body_param: f32[4]) -> f32[4] {
  %body_param = f32[4]{0} parameter(0)
  %one = f32[4]{0} constant({1, 1, 1, 1})
  ROOT %subtract = f32[4]{0} subtract(%body_param, %one)
}

%cond (cond_param: f32[4]) -> pred[] {
  %cond_param = f32[4]{0} parameter(0)
  %slice = f32[1]{0} slice(%cond_param), slice={[0:1]}
  %reshape = f32[] reshape(%slice)
  %zero = f32[] constant(0)
  ROOT %not-equal = pred[] compare(%reshape, %zero), direction=NE
}

ENTRY %entry () -> f32[2,4] {
  %init = f32[4]{0} constant({1, 2, 3, 4})
  %matrix = f32[2,4]{1,0} constant({...})
  %while = f32[4]{0} while(%init), condition=%cond, body=%body
  %bcast = f32[2,4]{1,0} broadcast(%while), dimensions={1}
  %transpose = f32[2,4]{1,0} transpose(%matrix), dimensions={0,1}
  ROOT %add = f32[2,4]{1,0} add(%transpose, %bcast)
}
"""

SIMPLE = """HloModule Simple
ENTRY entry {
  n0 = u8[10] iota(), iota_dimension=0
  n1 = u8[20] iota(), iota_dimension=0
  n2 = u8[30] iota(), iota_dimension=0
  n3 = u8[30] iota(), iota_dimension=0
  ROOT all = (u8[10], u8[20], u8[30], u8[30]) tuple(n0, n1, n2, n3)
}
"""

MIXED = """HloModule Mixed
ENTRY entry {
  a = u8[10] iota(), iota_dimension=0
  b = u8[20] iota(), iota_dimension=0, control-predecessors={a}
  c = u8[30] iota(), iota_dimension=0, control-predecessors={b}
  d = u8[5] iota(), iota_dimension=0, control-predecessors={c}
  ROOT e = u8[10] negate(a), control-predecessors={d}
}
"""

TUPLES = """HloModule TuplesAreAccountedCorrectly
ENTRY root {
  lit = f32[6] constant({1, 2, 3, 4, 5, 6})
  abs_const = f32[6] abs(lit)
  abs_abs1 = f32[6] abs(abs_const)
  tuple = (f32[6]) tuple(abs_abs1)
  tuple_elm = f32[6] get-tuple-element(tuple), index=0
  abs_abs2 = f32[6] abs(abs_const)
  ROOT add = f32[6] add(tuple_elm, abs_abs2)
}
"""

FUSION = """HloModule MultiOutputFusionAccountedCorrectly

fused {
  p0 = f32[5] parameter(0)
  p1 = f32[5] parameter(1)
  p2 = f32[5] parameter(2)
  sum = f32[5] add(p0, p1)
  product = f32[5] multiply(sum, p2)
  ROOT both = (f32[5], f32[5]) tuple(sum, product)
}

ENTRY root {
  c1 = f32[5] constant({1, 1, 1, 1, 1})
  c2 = f32[5] constant({1, 2, 3, 4, 5})
  c3 = f32[5] constant({0, 2, 4, 6, 8})
  fusion = (f32[5], f32[5]) fusion(c1, c2, c3), kind=kLoop, calls=fused
  fused_sum = f32[5] get-tuple-element(fusion), index=0
  exp = f32[5] exponential(c3)
  ROOT result = f32[5] add(fused_sum, exp)
}
"""

ALIASING = """HloModule ListSchedulerHandlesAliasing
ENTRY root {
  param = s32[1000] parameter(0)
  p0 = s32[1000] copy(param)
  p1 = s32[1000] copy(param)
  t = (s32[1000], s32[1000]) tuple(p0, p1)
  a = s32[1000] get-tuple-element(t), index=0
  b = s32[1000] get-tuple-element(t), index=1
  c = s32[1000] add(a, b)
  d = s32[1000] add(c, b)
  e = s32[1000] add(c, c)
  f = s32[1000] add(e, e)
  ROOT result = (s32[1000], s32[1000], s32[1000]) tuple(d, e, f)
}
"""

LAST_USE = """HloModule LastUseScheduledFirst
ENTRY root {
  param = f32[42] parameter(0)
  ab = f32[42] abs(param)
  exp = f32[42] exponential(param)
  add = f32[42] add(ab, exp)
  negate = f32[42] negate(exp)
  ROOT sub = f32[42] subtract(add, negate)
}
"""


def test_multi_computation_needs_25_bytes() -> None:
    """Two parameters of 4 bytes, their tuple's table of 16, and the condition's predicate of 1."""
    assert peak(graph_of(MULTI_COMPUTATION), "given") == 25


@pytest.mark.parametrize(("in_place", "expected"), [(True, 64), (False, 96)])
def test_subcomputation_accounting_needs_64_bytes_and_96_without_in_place(in_place: bool, expected: int) -> None:
    assert peak(graph_of(SUBCOMPUTATION), "given", in_place=in_place) == expected


def test_no_fragmentation_simple_needs_90_bytes() -> None:
    assert peak(graph_of(SIMPLE, pointer_bytes=0), "given") == 90


def test_no_fragmentation_mixed_needs_40_bytes() -> None:
    assert peak(graph_of(MIXED, pointer_bytes=0), "given", in_place=True) == 40


def test_tuples_are_accounted_with_73_bytes() -> None:
    graph = graph_of(TUPLES, pointer_bytes=1)
    names = order(graph, "xla-list")
    assert names.index("abs_abs2") < names.index("tuple")
    assert peak(graph, "xla-list") == 73


def test_multi_output_fusion_needs_60_bytes_where_list_takes_64() -> None:
    graph = graph_of(FUSION, pointer_bytes=2)
    names = order(graph, "xla-list")
    assert names.index("exp") < names.index("fusion")
    assert (peak(graph, "xla-list"), peak(graph, "xla-best")) == (64, 60)


def test_aliasing_needs_12024_bytes_where_depth_first_takes_20016() -> None:
    graph = graph_of(ALIASING)
    measured = partial(peak, graph, parameter_bytes=4000)
    names = order(graph, "xla-list")
    assert names.index("d") < names.index("e")
    assert names[-1] == "result"
    assert (measured("xla-list"), measured("xla-dfs")) == (12_024, 20_016)


@pytest.mark.parametrize("in_place", [False, True])
def test_the_last_use_comes_first_for_504_bytes_where_list_takes_672(in_place: bool) -> None:
    graph = graph_of(LAST_USE)
    names = order(graph, "xla-best", in_place=in_place)
    assert names.index("add") < names.index("negate")
    assert names[-1] == "sub"
    assert peak(graph, "xla-best", parameter_bytes=168) == 504
    assert peak(graph, "xla-list", parameter_bytes=168) == 672


def test_every_order_has_all_instructions() -> None:
    for text in (MULTI_COMPUTATION, SUBCOMPUTATION, SIMPLE, MIXED, TUPLES, FUSION, ALIASING, LAST_USE):
        read = read_module(parse_module(text))
        for computation in read.computations.values():
            places = instruction_order(computation, list(range(computation.graph.n_ops)))
            assert sorted(places) == list(range(len(computation.points.computation.instructions)))
