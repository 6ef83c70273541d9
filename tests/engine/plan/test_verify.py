"""Every rule of the verifier, violated once in a correct plan; the message names the step and the rule."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lowtide.core.errors import FingerprintError, PlanError, VerificationError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, Rows
from lowtide.engine.graph.execution import may_run_twice
from lowtide.engine.plan import Address, CopyIn, CopyOut, Free, Plan, Run, Step, StepKind, verify
from tests.golden.every_feature import every_feature_graph, every_feature_plan
from tests.oracles.plans import claim

HOST = 1
WEIGHT, IMAGE, HIDDEN, ACTIVE, SIDE, RESULT = range(6)
PROJECT, RELU, SHIFT, JOIN, NOISE = range(5)


def _graph() -> Graph:
    """Return project -> relu (in place if wanted) -> shift (mutates) -> join, and impure noise after relu."""
    builder = GraphBuilder("rules")
    builder.add_space("device", capacity_bytes=1000, alignment=4)
    builder.add_space("host")
    builder.add_buffer("weight", 100, Lifetime.PERSISTENT)
    builder.add_buffer("image", 8, Lifetime.DONATED)
    builder.add_buffer("hidden", 8)
    builder.add_buffer("active", 8)
    builder.add_buffer("side", 4, space=HOST)
    builder.add_buffer("result", 8, Lifetime.OUTPUT)
    builder.add_op("project", "matmul", reads=[WEIGHT, IMAGE], writes=[HIDDEN], scratch_bytes=20)
    builder.add_op("relu", "relu", reads=[HIDDEN], writes=[ACTIVE], in_place=[(HIDDEN, ACTIVE)])
    builder.add_op("shift", "add_", mutates=[ACTIVE], writes=[SIDE], pure=False, ordered=True)
    builder.add_op("join", "add", reads=[ACTIVE, SIDE], writes=[RESULT], after=[PROJECT])
    builder.add_op("noise", "rand", pure=False, ordered=True, after=[RELU])
    return builder.build()


GRAPH = _graph()
IN_PLACE = ((HIDDEN, ACTIVE),)
RIGHT: list[Step] = [Run(PROJECT), Free(IMAGE), Run(RELU, IN_PLACE), Run(SHIFT), Run(JOIN), Free(ACTIVE), Free(SIDE)]
RIGHT.append(Run(NOISE))


def _with(*changes: tuple[int, Step | None]) -> list[Step]:
    """Return the right steps with some inserted (or, for None, removed) at positions of the original."""
    steps = list(RIGHT)
    for position, step in sorted(changes, key=lambda change: -change[0]):
        if step is None:
            del steps[position]
        else:
            steps.insert(position, step)
    return steps


def test_the_right_plan_passes() -> None:
    verify(GRAPH, Plan.from_steps(GRAPH, RIGHT))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (_with((7, None)), "after the last step: op 'noise' never ran"),
        (_with((3, Run(NOISE)), (7, None)), "step 4: ordered op 'shift' runs after ordered op 'noise'"),
        ([Run(NOISE), *RIGHT[:-1]], "step 0: op 'noise' runs before its control predecessor 'relu'"),
        ([*RIGHT, Run(NOISE)], "step 8: op 'noise' runs a second time, but is not pure"),
        (
            _with((2, None)),
            "step 2: op 'shift' touches buffer 'active', which is not resident in memory space 'device'",
        ),
        (_with((0, Free(IMAGE)), (1, None)), "step 1: op 'project' touches buffer 'image', which is not resident"),
        (_with((4, Run(RELU))), "step 4: op 'relu' touches buffer 'hidden', which is not resident"),
        (_with((1, Free(HIDDEN))), "step 3: op 'relu' touches buffer 'hidden', which is not resident"),
        (_with((2, Free(IMAGE))), "step 2: buffer 'image' is freed in memory space 'device', but is not resident"),
        (_with((5, Free(ACTIVE, HOST))), "step 5: buffer 'active' is freed in memory space 'host', but has no copy"),
        (_with((8, Free(RESULT))), "after the last step: output buffer 'result' is not resident"),
        (_with((8, Free(WEIGHT))), "after the last step: persistent buffer 'weight' is not resident"),
        (_with((1, CopyOut(ACTIVE, HOST))), "step 1: buffer 'active' is copied out, but is not resident"),
        (_with((1, CopyOut(HIDDEN, 0))), "step 1: buffer 'hidden' is copied out to its home space"),
        (
            _with((1, CopyIn(HIDDEN, HOST))),
            "step 1: buffer 'hidden' is copied in, but has no copy in memory space 'host'",
        ),
        (
            [RIGHT[0], CopyOut(HIDDEN, HOST), CopyOut(HIDDEN, HOST), *RIGHT[1:]],
            "step 2: .*a copy in .*'host'.* already",
        ),
        ([RIGHT[0], CopyOut(HIDDEN, HOST), CopyIn(HIDDEN, HOST), *RIGHT[1:]], "step 2: .*is still resident; free it"),
        (_with((2, None), (2, Run(RELU, ((IMAGE, ACTIVE),)))), "does not offer in-place pair 'image' -> 'active'"),
        (_with((2, None), (2, Run(RELU, IN_PLACE + IN_PLACE))), "pairs that share a buffer"),
    ],
)
def test_a_broken_rule_is_named_with_its_step(steps: list[Step], message: str) -> None:
    with pytest.raises(VerificationError, match=message) as caught:
        verify(GRAPH, Plan.from_steps(GRAPH, steps))
    assert "\n" not in str(caught.value)


def test_stale_contents_are_told_from_current_ones_with_the_ops_that_wrote_them() -> None:
    """Copied out before the mutation and back in after it, a buffer holds what was there before."""
    steps = [*RIGHT[:3], CopyOut(ACTIVE, HOST), Run(SHIFT), Free(ACTIVE), CopyIn(ACTIVE, HOST), *RIGHT[4:]]
    with pytest.raises(
        VerificationError, match=r"step 7: .*needed as op 'shift' wrote it, but is resident as op 'relu' wrote"
    ):
        verify(GRAPH, Plan.from_steps(GRAPH, steps))


def test_running_a_producer_again_after_a_mutation_brings_the_old_contents_back() -> None:
    """The reader of the mutated buffer must not see what the rerun wrote."""
    steps = [Run(PROJECT), Free(IMAGE), Run(RELU), Run(SHIFT), Run(RELU), *RIGHT[4:]]
    with pytest.raises(VerificationError, match=r"step 5: op 'join' .*needed as op 'shift' wrote it"):
        verify(GRAPH, Plan.from_steps(GRAPH, steps))


def _pair_graph(lifetime: Lifetime = Lifetime.INTERMEDIATE, written_size: int = 8, space: int = 0) -> Graph:
    builder = GraphBuilder("pairs")
    builder.add_space("device")
    builder.add_space("host")
    read = builder.add_buffer("read", 8, lifetime)
    written = builder.add_buffer("written", written_size, Lifetime.OUTPUT, space=space)
    builder.add_op("make", "k", writes=[read])
    builder.add_op("op", "k", reads=[read], writes=[written], in_place=[(read, written)])
    return builder.build()


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (_pair_graph(Lifetime.INPUT), "the read buffer must stay resident"),
        (_pair_graph(Lifetime.PERSISTENT), "the read buffer must stay resident"),
        (_pair_graph(Lifetime.OUTPUT), "the read buffer must stay resident"),
        (_pair_graph(written_size=4), "differ in size or memory space"),
        (_pair_graph(space=1), "differ in size or memory space"),
    ],
)
def test_an_offered_pair_is_taken_only_where_storage_can_really_be_handed_over(graph: Graph, message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(graph, Plan.from_steps(graph, [Run(0), Run(1, ((0, 1),))]))


def test_a_pair_cannot_write_into_a_buffer_that_has_storage() -> None:
    graph = _pair_graph()
    with pytest.raises(VerificationError, match=r"step 2: .* has storage already"):
        verify(graph, Plan.from_steps(graph, [Run(0), Run(1), Run(1, ((0, 1),))]))


def test_rematerialization_offload_and_a_persistent_buffer_on_a_trip_are_accepted() -> None:
    steps = [
        Run(PROJECT),
        Free(HIDDEN),
        CopyOut(WEIGHT, HOST),
        Free(WEIGHT),
        CopyIn(WEIGHT, HOST),
        Run(PROJECT),
        Run(RELU),
        Free(HIDDEN),
        CopyOut(ACTIVE, HOST),
        Free(ACTIVE, 0),
        CopyIn(ACTIVE, HOST),
        *RIGHT[3:],
    ]
    plan = claim(GRAPH, Plan.from_steps(GRAPH, steps))
    verify(GRAPH, plan)
    assert plan.peak_bytes == {"device": 36, "host": 112}


def test_a_persistent_buffer_that_leaves_its_home_makes_no_room_there() -> None:
    """Persistent bytes stand apart from the peak, wherever the buffer is while the peak is reached."""
    steps = [Run(PROJECT), CopyOut(WEIGHT, HOST), Free(WEIGHT), *RIGHT[1:], CopyIn(WEIGHT, HOST)]
    plan = Plan.from_steps(GRAPH, steps)
    alone = claim(GRAPH, Plan.from_steps(GRAPH, RIGHT))
    verify(GRAPH, replace(plan, peak_bytes={"device": alone.peak_bytes["device"], "host": 104}))
    early = [CopyOut(WEIGHT, HOST), Free(WEIGHT), CopyIn(WEIGHT, HOST), *RIGHT]
    verify(GRAPH, replace(Plan.from_steps(GRAPH, early), peak_bytes=alone.peak_bytes | {"host": 104}))


def test_a_plan_for_another_graph_is_refused_before_anything_else() -> None:
    plan = Plan.from_steps(_pair_graph(), [Free(999)])
    with pytest.raises(FingerprintError, match="make a new plan"):
        verify(GRAPH, plan)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"kinds": np.array([9], np.uint8)}, "step 0 has an unknown kind"),
        ({"targets": np.array([-1], np.int32)}, "step 0 runs an op outside of the 5"),
        ({"targets": np.array([5], np.int32)}, "step 0 runs an op outside of the 5"),
        ({"kinds": np.array([StepKind.FREE], np.uint8), "targets": np.array([6], np.int32)}, "outside of the 6"),
        ({"kinds": np.array([StepKind.COPY_IN], np.uint8)}, "copies without naming"),
        ({"spaces": np.array([0], np.int16)}, "runs an op in a memory space"),
        ({"spaces": np.array([2], np.int16)}, "memory space outside of the 2"),
        ({"spaces": np.array([-2], np.int16)}, "memory space outside of the 2"),
        ({"spaces": np.array([-1, -1], np.int16)}, r"lengths \[1, 2\]"),
    ],
)
def test_arrays_out_of_range_are_refused(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(VerificationError, match=message):
        verify(GRAPH, replace(Plan.from_steps(GRAPH, [Run(0)]), **arrays))


@pytest.mark.parametrize(
    ("step", "pairs", "message"),
    [
        (Run(RELU), [HIDDEN], "half an in-place pair"),
        (Run(RELU), [HIDDEN, 99], "outside of the 6"),
        (Run(RELU), [-1, ACTIVE], "outside of the 6"),
        (Free(ACTIVE), [HIDDEN, ACTIVE], "runs no op"),
    ],
)
def test_malformed_pairs_are_refused(step: Step, pairs: list[int], message: str) -> None:
    plan = Plan.from_steps(GRAPH, [step])
    with pytest.raises(VerificationError, match=message):
        verify(GRAPH, replace(plan, pairs=type(plan.pairs).from_lists([pairs])))


@pytest.mark.parametrize("offsets", [[0, 2, 0], [1, 1, 2], [0, 0, 1], [0, 0, 10**9]])
def test_pairs_that_are_no_rows_are_refused_before_any_step_is_played(offsets: list[int]) -> None:
    pairs = Rows(np.array(offsets, np.int64), np.array([HIDDEN, ACTIVE], np.int32))
    with pytest.raises(VerificationError, match="are not valid rows"):
        verify(GRAPH, replace(Plan.from_steps(GRAPH, [Run(PROJECT), Run(RELU)]), pairs=pairs))


def test_persistent_and_live_bytes_together_must_fit_the_capacity_unless_that_is_not_asked_for() -> None:
    builder = GraphBuilder("tight")
    builder.add_space("device", capacity_bytes=19)
    builder.add_buffer("weight", 10, Lifetime.PERSISTENT)
    builder.add_buffer("out", 10, Lifetime.OUTPUT)
    builder.add_op("make", "k", reads=[0], writes=[1])
    graph = builder.build()
    with pytest.raises(VerificationError, match=r"step 0, op 'make': .*needs 20 bytes .* but has 19"):
        verify(graph, Plan.baseline(graph))
    verify(graph, Plan.baseline(graph), check_capacity=False)


def test_inputs_that_do_not_fit_are_reported_before_the_first_step() -> None:
    builder = GraphBuilder("full")
    builder.add_space("device", capacity_bytes=9)
    builder.add_buffer("x", 10, Lifetime.INPUT)
    graph = builder.build()
    with pytest.raises(VerificationError, match=r"before the first step: .*needs 10 bytes"):
        verify(graph, Plan.baseline(graph))


def test_a_rerun_beside_a_resident_output_counts_both_copies_and_needs_both_addresses() -> None:
    graph = _pair_graph()
    plan = claim(graph, Plan.from_steps(graph, [Run(0), Run(0), Run(1)]))
    assert plan.peak_bytes["device"] == 16
    verify(graph, plan)
    rows = [row for row in plan.addresses if row.buffer == 0]
    assert [(row.first_step, row.last_step) for row in rows] == [(0, 2), (1, 3)]
    together = tuple(replace(row, offset=0) if row.buffer == 0 else row for row in plan.addresses)
    with pytest.raises(VerificationError, match=r"'read' at 0 .*overlaps"):
        verify(graph, replace(plan, addresses=together))


def test_a_taken_pair_must_keep_its_offset() -> None:
    graph = _pair_graph()
    plan = Plan.from_steps(graph, [Run(0), Run(1, ((0, 1),))])
    rows = (Address(0, 0, 1, 0, 0), Address(1, 1, 2, 0, 8))
    with pytest.raises(VerificationError, match="both must have the same offset"):
        verify(graph, replace(plan, addresses=rows))
    verify(graph, replace(plan, addresses=(rows[0], replace(rows[1], offset=0))))


def test_inputs_that_are_freed_in_the_first_steps_hold_their_bytes_before_it() -> None:
    """Two donated inputs that nothing reads exist at the same time, before the first step."""
    builder = GraphBuilder("donated")
    builder.add_buffer("a", 8, Lifetime.DONATED)
    builder.add_buffer("b", 8, Lifetime.DONATED)
    graph = builder.build()
    plan = claim(graph, Plan.baseline(graph))
    assert plan.arena_bytes == {"device": 16}
    assert all(row.first_step < row.last_step for row in plan.addresses)
    verify(graph, plan)
    with pytest.raises(VerificationError, match="overlaps"):
        verify(graph, replace(plan, addresses=tuple(replace(row, offset=0) for row in plan.addresses)))


def test_an_address_beyond_all_memory_is_refused() -> None:
    graph = _pair_graph()
    plan = claim(graph, Plan.baseline(graph))
    rows = (replace(plan.addresses[0], offset=2**63), *plan.addresses[1:])
    with pytest.raises(VerificationError, match="is out of range"):
        verify(graph, replace(plan, addresses=rows, arena_bytes={}))


def test_plans_of_callees_are_verified_and_their_peaks_count() -> None:
    graph = every_feature_graph()
    plan = every_feature_plan(graph)
    verify(graph, plan)
    callee = graph.subgraphs["loop.body"]
    empty = Plan.from_steps(callee, [])
    for wrong, message in (
        ({"loop.body": empty}, "callee 'loop.body': after the last step: op 'step' never ran"),
        ({"loop.body": Plan.baseline(graph)}, "callee 'loop.body': the plan was made for"),
        (
            {"loop.body": replace(Plan.baseline(callee), peak_bytes={"device": 1})},
            "callee 'loop.body': the plan claims",
        ),
        ({"nothing": empty}, "callee 'nothing', which graph"),
    ):
        with pytest.raises(PlanError, match=message):
            verify(graph, replace(plan, callees=wrong))


def test_graphs_that_call_one_another_in_every_way_are_verified_once_each() -> None:
    """Forty graphs that each call all earlier ones: following every call would never end."""
    graphs: list[Graph] = []
    for number in range(40):
        builder = GraphBuilder(f"g{number}")
        builder.add_buffer("b", 1, Lifetime.INPUT)
        for callee in graphs:
            builder.add_subgraph(callee.name, callee)
        builder.add_op("call", "custom", callees=[callee.name for callee in graphs])
        graphs.append(builder.build())
    plan = Plan.baseline(graphs[-1])
    verify(graphs[-1], replace(plan, peak_bytes={"device": 40}))
    assert simulate(graphs[-1], plan).peak_bytes == {"device": 40}


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ({"pure": False}, "is not pure"),
        ({"ordered": True}, "keeps its place among the ordered ops"),
        ({"mutates": [0]}, "changes an existing buffer"),
    ],
)
def test_an_op_that_may_not_run_twice_is_refused_with_the_reason(op: dict[str, Any], why: str) -> None:
    """The rule is the planners' own: `may_run_twice` leaves the same op out."""
    builder = GraphBuilder("rerun")
    read, written = builder.add_buffer("x", 8, Lifetime.INPUT), builder.add_buffer("y", 8, Lifetime.OUTPUT)
    builder.add_op("op", "f", **{"reads": [read], "writes": [written], **op})
    graph = builder.build()
    assert not may_run_twice(graph).any()
    with pytest.raises(VerificationError, match=f"op 'op' runs a second time, but {why}"):
        verify(graph, Plan.from_steps(graph, [Run(0), Run(0)]))
