"""Points-to analysis: equal buffers and shared storage, compared with XLA's buffer assignment."""

from pathlib import Path

import pytest

from lowtide.core.errors import MalformedInputError
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.xla.load import load_module
from lowtide.frameworks.xla.points_to.buffers import part_at
from lowtide.frameworks.xla.reading.computation import ReadComputation
from lowtide.frameworks.xla.reading.module import read_module
from tests.frameworks.xla.modules import FOLDER, name_of, read_text


def _buffer(read: ReadComputation, name: str, *index: int) -> int:
    """Return the logical buffer at an index of an instruction's value."""
    place = read.points.computation.positions[name]
    part = part_at(read.points.computation.instructions[place].shape, index)
    assert part is not None
    return read.points.parts[place][part]


def _storage(read: ReadComputation, name: str, *index: int) -> int | None:
    return read.storage.of[_buffer(read, name, *index)]


NESTED_TUPLES = """
ENTRY main {
  a = f32[2] parameter(0)
  b = (f32[3], (f32[4], f32[5])) parameter(1)
  inner = (f32[4], f32[5]) get-tuple-element(b), index=1
  last = f32[5] get-tuple-element(inner), index=1
  pair = ((f32[4], f32[5]), f32[2]) tuple(inner, a)
  again = (f32[4], f32[5]) get-tuple-element(pair), index=0
  first = f32[4] get-tuple-element(again), index=0
  flat = f32[4,1] bitcast(first)
  fenced = ((f32[4], f32[5]), f32[2]) optimization-barrier(pair)
  ROOT out = (f32[4,1], f32[5], ((f32[4], f32[5]), f32[2])) tuple(flat, last, fenced)
}
"""


def test_elements_of_nested_tuples_are_the_original_buffers() -> None:
    read = read_text(NESTED_TUPLES).computations["main"]
    assert _buffer(read, "last") == _buffer(read, "b", 1, 1)
    assert _buffer(read, "first") == _buffer(read, "flat") == _buffer(read, "b", 1, 0)
    assert _buffer(read, "out", 2, 0, 1) == _buffer(read, "last")
    assert _buffer(read, "out", 2, 1) == _buffer(read, "a")
    assert _buffer(read, "pair", 0) == _buffer(read, "inner") == _buffer(read, "b", 1)
    assert len({_buffer(read, "pair"), _buffer(read, "b"), _buffer(read, "out")}) == 3


def test_only_tuples_are_ops_with_a_pointer_per_element() -> None:
    graph = read_text(NESTED_TUPLES).graph
    assert list(graph.op_names) == ["pair", "out"]
    sizes = dict(zip(graph.buffer_names, graph.sizes.tolist(), strict=True))
    assert (sizes["pair"], sizes["out"], sizes["b"], sizes["b[1]"], sizes["b[1,1]"]) == (16, 24, 16, 16, 20)


LOOP = """
body {
  s = (s32[], f32[8], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  y = f32[8] get-tuple-element(s), index=2
  w = f32[8] get-tuple-element(s), index=3
  one = s32[] constant(1)
  next = s32[] add(i, one)
  %NEW%
  ROOT out = (s32[], f32[8], f32[8], f32[8]) tuple(next, %X%, %Y%, w)
}
cond {
  s = (s32[], f32[8], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT more = pred[] compare(i, n), direction=LT
}
ENTRY main {
  a = f32[8] parameter(0)
  w = f32[8] parameter(1)
  zero = s32[] constant(0)
  i = s32[] copy(zero)
  x = f32[8] negate(a)
  y = f32[8] abs(a)
  init = (s32[], f32[8], f32[8], f32[8]) tuple(i, x, y, w)
  loop = (s32[], f32[8], f32[8], f32[8]) while(init), condition=cond, body=body
  lx = f32[8] get-tuple-element(loop), index=1
  ly = f32[8] get-tuple-element(loop), index=2
  lw = f32[8] get-tuple-element(loop), index=3
  ROOT sum = (f32[8], f32[8], f32[8]) tuple(lx, ly, lw)
}
"""


def _loop(new: str, x: str, y: str) -> tuple[ReadComputation, ReadComputation]:
    read = read_text(LOOP.replace("%NEW%", new).replace("%X%", x).replace("%Y%", y))
    return read.computations["body"], read.computations["main"]


def test_a_loop_without_the_shape_of_its_state_raises() -> None:
    text = LOOP.replace("%NEW%", "").replace("%X%", "x").replace("%Y%", "y")
    for wrong in ("(s32[], f32[8], f32[8])", "(s32[], f32[8], f32[8], f32[8], f32[8])"):
        with pytest.raises(MalformedInputError, match="does not fit its operands"):
            read_text(text.replace("loop = (s32[], f32[8], f32[8], f32[8])", f"loop = {wrong}"))


def test_a_loop_passes_on_unchanged_state_and_writes_the_rest_in_place() -> None:
    body, main = _loop("v = f32[8] add(x, w)", "v", "y")
    assert _buffer(main, "loop", 3) == _buffer(main, "w")
    assert _buffer(main, "loop", 2) == _buffer(main, "y")
    assert _buffer(main, "loop", 1) != _buffer(main, "x")
    assert _storage(main, "loop", 1) == _storage(main, "x")
    assert _storage(main, "loop") == _storage(main, "init")
    assert _storage(body, "v") == _storage(body, "s", 1)
    assert _storage(body, "next") == _storage(body, "s", 0)


def test_state_that_is_read_after_its_next_value_is_not_overwritten() -> None:
    body, _ = _loop("v = f32[8] add(x, w)\n  u = f32[8] multiply(x, v)", "v", "u")
    assert _storage(body, "v") != _storage(body, "s", 1)
    assert body.storage.swapped_bytes == 0


def test_copies_of_permuted_state_are_counted() -> None:
    body, main = _loop("", "y", "x")
    assert body.storage.swapped_bytes == 64
    assert _buffer(body, "out", 1) == _buffer(body, "s", 2)
    assert _storage(main, "loop", 1) == _storage(main, "x") != _storage(main, "loop", 2)


def test_state_that_moves_without_a_cycle_needs_no_copy() -> None:
    body, _ = _loop("v = f32[8] abs(w)", "y", "v")
    assert body.storage.swapped_bytes == 0


def test_a_buffer_read_after_a_loop_is_not_overwritten() -> None:
    text = LOOP.replace("%NEW%", "v = f32[8] add(x, w)").replace("%X%", "v").replace("%Y%", "y")
    text = text.replace("sum = (f32[8], f32[8], f32[8]) tuple(lx, ly, lw)", "sum = f32[8] add(lx, x)")
    main = read_text(text).computations["main"]
    assert _storage(main, "loop", 1) != _storage(main, "x")


def test_a_buffer_twice_in_a_state_is_not_overwritten() -> None:
    text = LOOP.replace("%NEW%", "v = f32[8] add(x, w)").replace("%X%", "v").replace("%Y%", "y")
    main = read_text(text.replace("tuple(i, x, y, w)", "tuple(i, x, x, w)")).computations["main"]
    assert _storage(main, "loop", 1) != _storage(main, "x") == _storage(main, "loop", 2)


CONDITIONAL = """
yes {
  p = (f32[8], f32[8]) parameter(0)
  a = f32[8] get-tuple-element(p), index=0
  b = f32[8] get-tuple-element(p), index=1
  t = f32[8] sine(a)
  d = f32[8] dot(t, b)
  ROOT out = (f32[8], f32[8]) tuple(d, b)
}
no {
  p = (f32[8], f32[8]) parameter(0)
  a = f32[8] get-tuple-element(p), index=0
  ROOT out = (f32[8], f32[8]) tuple(a, a)
}
ENTRY main {
  c = pred[] parameter(0)
  x = f32[8] parameter(1)
  y = f32[8] parameter(2)
  both = (f32[8], f32[8]) tuple(x, y)
  some = (f32[8], f32[8]) conditional(c, both, both), true_computation=yes, false_computation=no
  left = f32[8] get-tuple-element(some), index=0
  right = f32[8] get-tuple-element(some), index=1
  ROOT sum = f32[8] add(left, right)
}
"""


def test_a_conditional_has_its_own_result() -> None:
    main = read_text(CONDITIONAL).computations["main"]
    assert len({_storage(main, "some", 0), _storage(main, "some", 1), _storage(main, "x"), _storage(main, "y")}) == 4


def test_the_result_of_a_conditional_is_counted_once_with_the_larger_branch() -> None:
    """Two parameters, a predicate, the operand's table, and the larger branch: both its results, and the sine."""
    graph = read_text(CONDITIONAL.replace("ROOT sum = f32[8] add(left, right)", "ROOT left2 = f32[8] copy(left)")).graph
    peak = make_candidate("given", graph, in_place=False).plan.peak_bytes["device"]
    assert peak == 2 * 32 + 1 + 16 + 2 * 32 + 32


def test_a_call_returns_operands_that_its_callee_returns() -> None:
    read = read_text("""
inner {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  n = f32[8] negate(p)
  ROOT out = (f32[8], f32[8]) tuple(q, n)
}
ENTRY main {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  both = (f32[8], f32[8]) call(a, b), to_apply=inner
  first = f32[8] get-tuple-element(both), index=0
  ROOT sum = f32[8] add(first, b)
}
""").computations["main"]
    assert _buffer(read, "first") == _buffer(read, "b")


CALLED_LOOP = """
body {
  s = f32[8] parameter(0)
  ROOT n = f32[8] negate(s)
}
cond {
  s = f32[8] parameter(0)
  ROOT more = pred[] custom-call(s)
}
runs {
  s = f32[8] parameter(0)
  ROOT w = f32[8] while(s), condition=cond, body=body
}
ENTRY main {
  a = f32[8] parameter(0)
  x = f32[8] abs(a)
  done = f32[8] call(x), to_apply=runs
  ROOT out = f32[8] add(done, %OTHER%)
}
"""


def test_a_call_overwrites_a_dying_operand_that_its_callee_changes() -> None:
    dying = read_text(CALLED_LOOP.replace("%OTHER%", "a"))
    kept = read_text(CALLED_LOOP.replace("%OTHER%", "x"))
    assert _storage(dying.computations["main"], "done") == _storage(dying.computations["main"], "x")
    assert _storage(kept.computations["main"], "done") != _storage(kept.computations["main"], "x")
    peaks = [make_candidate("given", read.graph, in_place=True).plan.peak_bytes["device"] for read in (dying, kept)]
    assert peaks == [32 + 32 + 1, 32 + 32 + 32 + 1]


def test_asynchronous_work_keeps_its_operands_alive() -> None:
    read = read_text("""
ENTRY main {
  a = f32[8] parameter(0)
  n = f32[8] negate(a)
  start = (f32[8]{0:S(5)}, f32[8], u32[]) copy-start(n)
  between = f32[8] abs(a)
  done = f32[8]{0:S(5)} copy-done(start)
  gather = (f32[8], f32[32]) all-gather-start(between), dimensions={0}
  gathered = f32[32] all-gather-done(gather)
  ROOT out = (f32[8]{0:S(5)}, f32[32]) tuple(done, gathered)
}
""")
    main = read.computations["main"]
    assert _buffer(main, "done") == _buffer(main, "start", 0)
    assert _buffer(main, "start", 1) == _buffer(main, "n")
    assert _buffer(main, "gathered") == _buffer(main, "gather", 1)
    graph = read.graph
    assert [space.name for space in graph.spaces] == ["device", "S(5)"]
    assert graph.buffer(main.buffers[_buffer(main, "done")]).space == 1
    ends = list(graph.op_names).index("done")
    assert main.buffers[_buffer(main, "n")] in graph.reads[ends].tolist()


def test_an_aliased_result_shares_storage_if_it_overwrites_the_parameter() -> None:
    text = """HloModule test, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY main {
  w = f32[8] parameter(0)
  m = f32[8] parameter(1)
  g = f32[8] parameter(2)
  w2 = f32[8] subtract(w, g)
  m1 = f32[8] negate(m)
  m2 = f32[8] dot(m1, g)
  ROOT out = (f32[8], f32[8]) tuple(w2, m2)
}
"""
    read = read_text(text)
    main, graph = read.computations["main"], read.graph
    assert _storage(main, "w2") == _storage(main, "w")
    assert _storage(main, "m2") != _storage(main, "m")
    lifetimes = {name: graph.buffer(place).lifetime.name for place, name in enumerate(graph.buffer_names)}
    assert (lifetimes["w"], lifetimes["m"], lifetimes["g"], lifetimes["m2"]) == ("INPUT", "DONATED", "INPUT", "OUTPUT")


def test_readers_of_a_donated_parameter_precede_its_aliased_result() -> None:
    graph = read_text("""HloModule test, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY main {
  w = f32[8] parameter(0)
  g = f32[8] parameter(1)
  n = f32[8] negate(w)
  w2 = f32[8] dot(g, g)
  ROOT out = (f32[8], f32[8]) tuple(w2, n)
}
""").graph
    names = list(graph.op_names)
    assert names.index("n") in graph.structure.predecessors[names.index("w2")].tolist()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.pb")), ids=name_of)
def test_shared_storage_is_shared_in_xlas_assignment(path: Path) -> None:
    loaded = load_module(path)
    assigned = {
        buffer.place: (allocation.number, buffer.offset)
        for allocation in loaded.allocations
        for buffer in allocation.buffers
    }
    read = read_module(loaded.module)
    compared = 0
    for name, computation in read.computations.items():
        places: dict[int, set[tuple[int, int]]] = {}
        for number, logical in enumerate(computation.points.buffers):
            instruction = computation.points.computation.instructions[logical.definer]
            key = (name, instruction.name, instruction.shape.indices[logical.part])
            storage = computation.storage.of[number]
            if storage is not None and key in assigned:
                places.setdefault(storage, set()).add(assigned[key])
                compared += 1
        assert all(len(where) == 1 for where in places.values())
    assert compared >= len(read.computations)
