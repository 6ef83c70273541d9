"""Answers that TensorFlow's own tests of the memory optimizer state, on the same small graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run
from lowtide.engine.timeline import play_timeline
from lowtide.frameworks.tensorflow.grappler.levels import LevelName, LevelPlan, optimize_memory
from lowtide.frameworks.tensorflow.grappler.nodes import Hints
from tests.oracles.timeline import busy_seconds

MEBIBYTE = 2**20
HALF = MEBIBYTE // 2


def _graph(
    nodes: Mapping[str, tuple[str, Sequence[str]]],
    *,
    sizes: Mapping[str, int] | None = None,
    capacity: int | None = None,
) -> Graph:
    """Build a graph of nodes (name -> kind, inputs), one buffer each; "Variable" nodes are persistent buffers only."""
    builder = GraphBuilder("known")
    builder.add_space("gpu", capacity_bytes=capacity, bandwidth_bytes_per_s={"host": 16e9})
    builder.add_space("host", bandwidth_bytes_per_s={"gpu": 16e9})
    buffers: dict[str, int] = {}
    for name, (kind, inputs) in nodes.items():
        lifetime = Lifetime.PERSISTENT if kind == "Variable" else Lifetime.INTERMEDIATE
        buffers[name] = builder.add_buffer(name, (sizes or {}).get(name, HALF), lifetime)
        if kind != "Variable":
            builder.add_op(name, kind, reads=[buffers[each] for each in inputs], writes=[buffers[name]], cost=1.0)
    return builder.build()


def _swaps(done: LevelPlan) -> list[tuple[str, int]]:
    return [(done.graph.op_names[swap.op], swap.read) for swap in done.swapped]


def test_of_a_chain_of_six_the_hinted_node_is_copied() -> None:
    graph = _graph(
        {
            "a": ("Variable", []),
            "b": ("Identity", ["a"]),
            "c": ("Identity", ["b"]),
            "gradients/d": ("AddN", ["c"]),
            "gradients/e": ("AddN", ["gradients/d", "b"]),
            "gradients/f": ("AddN", ["gradients/e", "a"]),
        }
    )
    done = optimize_memory(graph, "manual", hints=Hints(recompute=frozenset({"b"})))
    assert done.recomputed == ("b",)
    assert done.plan.order().tolist() == [0, 1, 2, 0, 3, 4]
    assert optimize_memory(graph, "manual").recomputed == ()


def test_of_a_convolution_batch_norm_and_relu_the_cheap_two_are_copied() -> None:
    graph = _graph(
        {
            "image": ("Variable", []),
            "conv": ("Conv2D", ["image"]),
            "bn": ("FusedBatchNorm", ["conv"]),
            "relu": ("Relu", ["bn"]),
            "loss": ("Sum", ["relu"]),
            "gradients/start": ("Fill", ["loss"]),
            "gradients/relu": ("ReluGrad", ["gradients/start", "relu"]),
            "gradients/bn": ("FusedBatchNormGrad", ["gradients/relu", "conv"]),
            "gradients/conv": ("Conv2DBackpropFilter", ["gradients/bn", "image"]),
        }
    )
    assert optimize_memory(graph, "recomputation").recomputed == ("bn", "relu")


def _convolution_net(layers: int, scope: str = "gradients/", capacity: int | None = None) -> Graph:
    """Return convolution, batch norm and ReLU, so many times, with gradients that look at shapes too, as TensorFlow
    makes them."""
    nodes: dict[str, tuple[str, Sequence[str]]] = {"relu-1": ("Placeholder", [])}
    for k in range(layers):
        nodes[f"w{k}"] = ("Variable", [])
        nodes[f"conv{k}"] = ("Conv2D", [f"relu{k - 1}", f"w{k}"])
        nodes[f"bn{k}"] = ("FusedBatchNormV3", [f"conv{k}"])
        nodes[f"relu{k}"] = ("Relu", [f"bn{k}"])
    gradient = f"{scope}start"
    nodes[gradient] = ("Mean", [f"relu{layers - 1}"])
    for k in reversed(range(layers)):
        nodes[f"{scope}relu{k}"] = ("ReluGrad", [gradient, f"relu{k}"])
        nodes[f"{scope}bn{k}"] = ("FusedBatchNormGradV3", [f"{scope}relu{k}", f"conv{k}"])
        nodes[f"{scope}shape{k}"] = ("ShapeN", [f"relu{k - 1}"])
        nodes[f"{scope}filter{k}"] = ("Conv2DBackpropFilter", [f"{scope}bn{k}", f"relu{k - 1}", f"{scope}shape{k}"])
        gradient = f"{scope}input{k}"
        nodes[gradient] = ("Conv2DBackpropInput", [f"{scope}bn{k}", f"w{k}", f"{scope}shape{k}"])
    sizes = {name: 16 for name in nodes if "shape" in name or "filter" in name or name.startswith("w")}
    return _graph(nodes, sizes=sizes, capacity=capacity)


@pytest.mark.parametrize(
    ("scope", "asked_for", "copies"),
    [("gradients/", "gradients/", 20), ("optimizer/gradients/", "gradients/", 20), ("gradients/", "optimizer/", 0)],
)
def test_of_ten_convolution_layers_twenty_nodes_are_copied_if_the_scope_matches(
    scope: str, asked_for: str, copies: int
) -> None:
    done = optimize_memory(_convolution_net(10, scope), "recomputation", scope=asked_for)
    assert len(done.recomputed) == copies


def test_nine_hints_make_nine_copies() -> None:
    hints = Hints(recompute=frozenset(f"relu{k}" for k in range(9)))
    assert len(optimize_memory(_convolution_net(10), "manual", hints=hints).recomputed) == 9


def test_a_fed_node_is_never_copied() -> None:
    fed = Hints(fed=frozenset({"relu3"}))
    assert "relu3" not in optimize_memory(_convolution_net(10), "recomputation", hints=fed).recomputed


def test_on_convolution_nets_with_shape_nodes_the_peak_falls() -> None:
    """Where Grappler's trigger degenerates, since a shape is ready at once: only the convolutions stay, one of three
    values per layer, where the program keeps two."""
    graph = _convolution_net(10)
    before = simulate(graph, Plan.baseline(graph)).peak_bytes["gpu"]
    after = optimize_memory(graph, "recomputation").plan.peak_bytes["gpu"]
    assert before >= 20 * HALF
    assert after <= 15 * HALF


def _manual_swap(between: int) -> Graph:
    """Return a chain whose last node `e` reads `b` again."""
    nodes: dict[str, tuple[str, Sequence[str]]] = {"a": ("Placeholder", []), "b": ("AddN", ["a"])}
    last = "b"
    for k in range(between):
        nodes[f"c{k}"] = ("AddN", [last])
        last = f"c{k}"
    nodes["e"] = ("AddN", ["b", last])
    return _graph(nodes)


def test_a_hinted_read_is_swapped_once() -> None:
    """Out before its other reader; back after that too, the last that is over before the transfer must start."""
    graph = _manual_swap(2)
    done = optimize_memory(graph, "manual", hints=Hints(swap={"e": [0]}))
    (swap,) = done.swapped
    assert (graph.op_names[swap.in_trigger], graph.op_names[swap.out_trigger]) == ("c0", "c0")
    assert done.rounds == 2  # the second one finds nothing more to do


def test_a_swapped_value_is_away_between_its_readers_and_back_in_time() -> None:
    graph = _manual_swap(5)
    done = optimize_memory(graph, "manual", hints=Hints(swap={"e": [0]}))
    a, b, *c, last, e = range(graph.n_ops)
    assert [step for step in done.plan.steps() if not isinstance(step, Free) or step.buffer == b] == [
        Run(a),
        Run(b),
        CopyOut(b, 1),
        Run(c[0]),
        Free(b),
        *(Run(op) for op in c[1:]),
        CopyIn(b, 1),
        Run(last),
        Run(e),
        Free(b),
        Free(b, 1),
    ]
    assert play_timeline(done.graph, done.plan).extra_seconds == 0


def test_a_value_that_is_read_twice_at_once_makes_one_trip() -> None:
    nodes: dict[str, tuple[str, Sequence[str]]] = {"a": ("Placeholder", []), "b": ("AddN", ["a"])}
    nodes |= {f"c{k}": ("AddN", [f"c{k - 1}" if k else "b"]) for k in range(5)}
    nodes["e"] = ("AddN", ["b", "b", "c4"])
    done = optimize_memory(_graph(nodes), "manual", hints=Hints(swap={"e": [0, 1]}))
    assert _swaps(done) == [("e", 0), ("e", 1)]
    assert sum(isinstance(step, CopyIn) for step in done.plan.steps()) == 1


def test_values_that_come_back_for_the_same_node_come_one_after_the_other() -> None:
    """Each transfer takes as long as one node: the first starts two nodes ahead, so that nobody waits."""
    nodes: dict[str, tuple[str, Sequence[str]]] = {"a": ("Placeholder", []), "b": ("AddN", ["a"])}
    nodes |= {"b2": ("AddN", ["b"])}
    nodes |= {f"c{k}": ("AddN", [f"c{k - 1}"] if k else ["b", "b2"]) for k in range(9)}
    nodes["e"] = ("AddN", ["b", "b2", "c8"])
    graph = _graph(nodes)
    spaces = tuple(
        replace(space, bandwidth_bytes_per_s=dict.fromkeys(space.bandwidth_bytes_per_s, HALF)) for space in graph.spaces
    )
    graph = replace(graph, spaces=spaces)
    done = optimize_memory(graph, "manual", hints=Hints(swap={"e": [0, 1]}), bytes_per_second=HALF)
    timeline = play_timeline(done.graph, done.plan)
    assert busy_seconds(timeline) == {"compute": 13, "gpu -> host": 2, "host -> gpu": 2}
    assert timeline.hidden_seconds == 4
    assert timeline.extra_seconds == 0


def test_a_persistent_value_is_never_swapped_nor_another_name_of_it() -> None:
    nodes = {
        "v": ("Variable", []),
        "a": ("Identity", ["v"]),
        "b": ("Square", ["a"]),
        "c": ("Sqrt", ["b"]),
        "e": ("Concat", ["v", "a", "c"]),
    }
    assert not optimize_memory(_graph(nodes), "manual", hints=Hints(swap={"e": [0, 1]})).swapped


CONCAT = {
    "v": ("Variable", []),
    "a": ("Identity", ["v"]),
    "b": ("Square", ["v"]),
    "c": ("Sqrt", ["a"]),
    "d": ("Identity", ["b"]),
    "axis": ("Const", []),
    "f": ("Square", ["a"]),
    "g": ("Sqrt", ["b"]),
    "h": ("Exp", ["c"]),
    "e": ("ConcatV2", ["a", "b", "c", "d", "axis"]),
    "i": ("Log", ["d"]),
}


@pytest.mark.parametrize("level", ["swapping", "default", "heuristics"])
def test_inputs_one_to_three_of_a_concatenation_are_swapped_and_input_zero_is_not(level: LevelName) -> None:
    """Input 0 is another name of a variable, which stays where it is."""
    graph = _graph(CONCAT, sizes={"e": 4 * HALF, "axis": 4}, capacity=MEBIBYTE)
    swaps = _swaps(optimize_memory(graph, level))
    assert [read for op, read in swaps if op == "e"] == [1, 2, 3]


def test_without_pressure_or_capacity_nothing_is_swapped() -> None:
    for capacity in (None, 2**30):
        graph = _graph(CONCAT, sizes={"e": 4 * HALF, "axis": 4}, capacity=capacity)
        assert not optimize_memory(graph, "heuristics").swapped


def test_a_sum_near_capacity_becomes_an_accumulation() -> None:
    nodes = {name: ("RandomNormal", []) for name in "abc"}
    nodes |= {"d": ("AddN", ["a", "b", "c"]), "e": ("Square", ["d"])}
    for capacity, names in ((4 * HALF, ("d",)), (6 * HALF, ())):
        done = optimize_memory(_graph(nodes, capacity=capacity), "scheduling")
        assert done.accumulated == names


def test_a_sum_of_two_stays() -> None:
    nodes = {name: ("RandomNormal", []) for name in "ab"} | {"d": ("AddN", ["a", "b"]), "e": ("Square", ["d"])}
    assert not optimize_memory(_graph(nodes, capacity=MEBIBYTE), "scheduling").accumulated


def test_an_assignment_needs_no_pinned_memory_if_all_that_follows_stays_on_its_device() -> None:
    def assign(devices: Sequence[str | None], last_kind: str = "Exp") -> tuple[str, ...]:
        builder = GraphBuilder("assignments")
        variable = builder.add_buffer("v", 4, Lifetime.PERSISTENT)
        value, result = builder.add_buffer("value", 4), builder.add_buffer("result", 4)
        builder.add_op("constant", "Const", writes=[value], device=devices[0])
        builder.add_op("assign", "Assign", reads=[value], mutates=[variable], pure=False, device=devices[1])
        builder.add_op("after", last_kind, reads=[variable], writes=[result], device=devices[2])
        return optimize_memory(builder.build(), "default").relaxed

    assert assign([None, None, None]) == ("assign",)
    assert assign(["cpu", "gpu", "gpu"]) == ("assign",)
    assert assign(["gpu", "gpu", "cpu"]) == ()
    assert assign(["gpu", "gpu", "gpu"], "_Send") == ()
