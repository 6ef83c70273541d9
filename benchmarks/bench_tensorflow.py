"""Training graphs of TensorFlow: Grappler's estimate before, after Grappler and after lowtide, real runs, and seconds.

It needs `lowtide[tensorflow]`. Grappler runs on a virtual cluster with one GPU, with every other optimizer off.
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # oneDNN rounds by how it fuses, which an order changes

import numpy as np
from results import write_section
from tensorflow_nets import NETS, training_graph

from lowtide import minimize
from lowtide.engine.analysis import simulate
from lowtide.engine.offload import Host
from lowtide.frameworks.outputs import largest_difference
from lowtide.frameworks.tensorflow.executor import executor_plan
from lowtide.frameworks.tensorflow.graphs.attributes import of_shape, of_shapes, of_type, shape
from lowtide.frameworks.tensorflow.measure import made_up_variables
from lowtide.tensorflow import GraphDef, NodeDef, TensorflowModel, optimize, run_graph

UNCHANGED = 0.002
"""An estimate that falls by less than this share stays as it is."""
BUDGETS = ("80%", "65%")
LARGE_NODES = 20_000
LEVELS = ("scheduling", "swapping", "recomputation", "heuristics")
RUN = ("conv-BN-ReLU, 10 layers", "residual, 12 layers", "inception, 12 layers", "MLP, 10 layers", "LSTM, 10 steps")
HOSTED = ("conv-BN-ReLU, 10 layers", "residual, 12 layers", "inception, 12 layers", "MLP, 10 layers")


@dataclass(frozen=True)
class Estimates:
    """Grappler's estimates of the peak of one net, in bytes."""

    name: str
    nodes: int
    before: int
    grappler: int
    level: int
    within: Sequence[int | None]
    """None where no plan fits."""
    copies: int

    @property
    def is_unchanged(self) -> bool:
        """Whether Grappler's pass leaves the estimate as it is, or makes it higher."""
        return self.grappler >= (1 - UNCHANGED) * self.before

    @property
    def never_higher(self) -> bool:
        """Whether our level is no higher than the program and than Grappler's."""
        return self.level <= (1 + 1e-5) * min(self.before, self.grappler)

    def is_lower(self, figures: Sequence[int | None]) -> bool:
        """Whether one of some figures is lower than the program."""
        return min(figure or self.before for figure in figures) < (1 - UNCHANGED) * self.before

    def row(self) -> str:
        """The row of the table."""
        figures = (self.grappler, self.level, *self.within)
        shares = " | ".join("none fits" if each is None else f"{each / self.before:.3f}" for each in figures)
        return f"| {self.name} | {self.nodes:,} | {self.before:,} | {shares} | {self.copies} |"


def estimates(name: str) -> Estimates:
    """Ask Grappler about one net."""
    from tensorflow.python.grappler import item as items

    from tests.oracles.estimate_with_grappler import with_nodes
    from tests.oracles.record_grappler import HUGE, cluster_of, estimate, meta_of
    from tests.oracles.record_grappler import optimize as grappler

    graph = training_graph(name)
    meta = meta_of(graph)
    fetches = [each.partition(":")[0] for each in meta.collection_def["train_op"].node_list.value]
    costs = cluster_of(HUGE, "GPU").MeasureCosts(items.Item(meta))[0]
    seconds = {cost.node: cost.compute_cost * 1e-9 for cost in costs}
    message = graph.as_graph_def(add_shapes=True)
    level = optimize(message, "recomputation", devices={"/gpu:0": HUGE}, seconds=seconds)
    within = [optimize(message, budget=budget, fetches=fetches) for budget in BUDGETS]
    theirs = grappler(meta, "recomputation", "gradients/", cluster_of(HUGE, "GPU"))
    return Estimates(
        name=name,
        nodes=len(message.node),
        before=estimate(meta),
        grappler=estimate(with_nodes(meta, theirs.node)),
        level=estimate(with_nodes(meta, level.graph.node)),
        within=[
            None if each.result is None or each.result.shortfall else estimate(with_nodes(meta, each.graph.node))
            for each in within
        ],
        copies=len(level.recomputed),
    )


def cpu_graph(name: str) -> tuple[Any, list[str]]:
    """Return a net with its gradients on no device by name, and what is asked for."""
    import tensorflow as tf

    make, layers, resource = NETS[name]
    graph = tf.Graph()
    with graph.as_default():
        loss = make(tf, layers, resource)
        gradients = tf.gradients(loss, tf.compat.v1.trainable_variables())
    return graph, [loss.name, *(tf.convert_to_tensor(each).name for each in gradients)]


def equal_with_grappler(name: str) -> bool:
    """Return whether a level, the best order and a plan for 70 % give the bits of the untouched graph, Grappler on."""
    graph, fetches = cpu_graph(name)
    model = TensorflowModel(graph, fetches=fetches)
    plans = [minimize(model.graph), minimize(model.graph, budget="70%", allow=("reorder", "share", "recompute"))]
    level = optimize(graph, "recomputation", fetches=fetches).graph
    rewritten = [GraphDef.parse(level.SerializeToString()), *(model.planned_graph(each.plan) for each in plans)]
    placeholders = {node.name: shape(node.attribute("shape")) for node in model.unmodified_graph.nodes if is_fed(node)}
    feeds = {f"{each}:0": np.random.default_rng(0).random(sizes, np.float32) for each, sizes in placeholders.items()}
    variables = made_up_variables(model.unmodified_graph)
    expected, *values = (
        run_graph(each, feeds, fetches, variables, with_grappler=True).values
        for each in (model.unmodified_graph, *rewritten)
    )
    return all(largest_difference(expected, each) == 0 for each in values)


def is_fed(node: NodeDef) -> bool:
    """Whether a node is a placeholder."""
    return node.op == "Placeholder"


def host_row(name: str) -> tuple[str, bool]:
    """Run a net within 60 % with copies to a host only; return the row, and whether all values are equal."""
    graph, fetches = cpu_graph(name)
    model = TensorflowModel(graph, fetches=fetches).with_host(Host(bandwidth_bytes_per_s=16e9))
    result = minimize(model.graph, budget="60%", allow=("offload",))
    measured = model.measure(result.plan)
    predicted = sum(size for space, size in result.peak_bytes.items() if space != "host")
    figures = (
        measured.before_bytes,
        predicted,
        measured.after_bytes,
        result.peak_bytes["host"],
        measured.host_bytes or 0,
    )
    return f"| {name} | {' | '.join(f'{figure:,}' for figure in figures)} |", measured.outputs_equal


def run_row(name: str) -> tuple[str, bool]:
    """Run a net as it stands and under plans; return the row, and whether all values are equal bit for bit."""
    graph, fetches = cpu_graph(name)
    model = TensorflowModel(graph, fetches=fetches)
    least = model.measure(minimize(model.graph).plan)
    result = minimize(model.graph, budget="70%", allow=("reorder", "share", "recompute"))
    within = model.measure(result.plan)
    predicted = sum(result.peak_bytes.values())
    own = sum(simulate(model.graph, executor_plan(model.translation)).peak_bytes.values())
    figures = (least.original_bytes or 0, own, least.before_bytes, least.after_bytes, within.after_bytes, predicted)
    resident = (model.resident_bytes(), model.resident_bytes(result.plan))
    row = " | ".join(f"{figure:,}" for figure in (*figures, *resident))
    return f"| {name} | {row} |", least.outputs_equal and within.outputs_equal


def seconds_row(kind: str, work: Any) -> tuple[str, Any]:
    """Return the row of one kind of work, in seconds of processor time, and what it returns."""
    started = time.process_time()
    made = work()
    return f"| {kind} | {time.process_time() - started:.2f} |", made


def changed_rows() -> list[str]:
    """Return the rows of levels that change a file of 20,000 nodes: layers whose activations can be copied."""
    typed = {"T": of_type(1), "_output_shapes": of_shapes([(64,)])}
    small = {**typed, "_output_shapes": of_shapes([(1,)])}
    nodes = [NodeDef.make("x", "Placeholder", (), {"dtype": of_type(1), "shape": of_shape((64,))})]
    layers = LARGE_NODES // 7
    for k in range(layers):
        nodes.append(NodeDef.make(f"wide{k}", "Softmax", [f"relu{k - 1}" if k else "x"], typed))
        nodes.append(NodeDef.make(f"bias{k}", "BiasAdd", [f"wide{k}", "x"], typed))
        nodes.append(NodeDef.make(f"relu{k}", "Relu", [f"bias{k}"], typed))
    read = f"relu{layers - 1}"
    for k in reversed(range(layers)):
        nodes.append(NodeDef.make(f"gradients/relu{k}", "ReluGrad", [read, f"relu{k}"], typed))
        nodes.append(NodeDef.make(f"gradients/bias{k}", "TanhGrad", [f"wide{k}", f"gradients/relu{k}"], typed))
        nodes.append(NodeDef.make(f"gradients/w{k}", "Mul", [f"relu{k}", f"gradients/bias{k}"], small))
        nodes.append(NodeDef.make(f"gradients/wide{k}", "Elu", [f"gradients/bias{k}"], typed))
        read = f"gradients/wide{k}"
    with TemporaryDirectory() as folder:
        source = Path(folder) / "a.pb"
        source.write_bytes(GraphDef(nodes).SerializeToString())
        rows: list[str] = []
        for level in ("recomputation", "heuristics"):
            row, done = seconds_row(f"reading, level {level}, which copies", partial(optimize, source, level))
            row = row.replace("copies", f"copies {len(done.recomputed):,} nodes")
            writing, _ = seconds_row(f"writing, level {level}", done.graph.SerializeToString)
            rows += [row, writing]
    return rows


def large_rows() -> list[str]:
    """Return the rows of what is done with a file of 20,000 nodes."""
    typed = {"T": of_type(1), "_output_shapes": of_shapes([(64,)]), "_class": b"\x0a\x08\x12\x06loc:@x"}
    nodes = [NodeDef.make("x", "Placeholder", (), {"dtype": of_type(1), "shape": of_shape((64,))})]
    read = ["x"]
    while len(nodes) < LARGE_NODES * 2 // 3:
        nodes.append(NodeDef.make(f"block/relu_{len(nodes)}", "Relu", [read[-1]], typed))
        nodes.append(NodeDef.make(f"block/add_{len(nodes)}", "AddV2", [read[-1], nodes[-1].name], typed))
        read.append(nodes[-1].name)
    while len(nodes) < LARGE_NODES:
        nodes.append(NodeDef.make(f"gradients/relu_{len(nodes)}", "ReluGrad", [nodes[-1].name, read.pop()], typed))
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "a.pb", Path(folder) / "b.pb"
        source.write_bytes(GraphDef(nodes).SerializeToString())
        reading, model = seconds_row("reading", lambda: TensorflowModel(source))
        planning, result = seconds_row("planning", lambda: minimize(model.graph))
        writing, _ = seconds_row("writing", lambda: model.save(result.plan, target))
        rows = [reading, planning, writing]
        for level in LEVELS:
            done = partial(optimize, source, level, devices={"/gpu:0": "100 KiB"})
            row, optimized = seconds_row(f"reading, level {level}", done)
            writing, _ = seconds_row(f"writing, level {level}", optimized.graph.SerializeToString)
            rows += [row, writing]
    return rows


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    if find_spec("tensorflow") is None:
        print("bench_tensorflow: there is no package tensorflow; pip install 'lowtide[tensorflow]'")
        return
    rows = [estimates(name) for name in NETS]
    runs = [run_row(name) for name in RUN]
    same = sum(equal_with_grappler(name) for name in RUN)
    hosted = [host_row(name) for name in HOSTED]
    left = [each for each in rows if each.is_unchanged]
    at_level = sum(each.is_lower([each.level]) for each in left)
    at_all = sum(each.is_lower([each.level, *each.within]) for each in left)
    equal = sum(ok for _, ok in runs)
    budgets = " | ".join(f"budget {each}" for each in BUDGETS)
    lines = [
        "Grappler's own estimate of the peak (`DeterminePeakMemoryUsage`) of networks with their gradients, in bytes,",
        "and as shares of that: after Grappler's recomputation, after `optimize(graph, 'recomputation')` with its",
        "costs of nodes, and after `optimize(graph, budget=…)`. Batches and images are small; ratios are what matters.",
        f"Our level is never higher than the program and Grappler's on {sum(each.never_higher for each in rows)} of "
        f"{len(rows)} nets. Of",
        f"{len(left)} that Grappler leaves as they are or makes worse, our level lowers {at_level}, budgets {at_all}.",
        "",
        f"| net | nodes | program | Grappler | our level | {budgets} | copies |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
        *(each.row() for each in rows),
        "",
        "Peaks of real runs on the CPU from RunMetadata, one node at a time, no optimizer on, in bytes without",
        "variables: as TensorFlow orders it, with what the simulation of its executor says of that, held to the",
        "order in which nodes are ready, to the best order found, and to a plan for 70 % with copies, with what was",
        "predicted of that: without outputs of unknown shape, and with slices as copies. At the end, by how much a run",
        "raised the resident memory of a process of its own, as it stands and within 70 %: the real allocator, with",
        f"what kernels need for themselves. Values and gradients are equal bit for bit on {equal} of {len(runs)} nets,",
        f"and with all of TensorFlow's optimizers on those of the untouched graph with these on {same} of {len(RUN)}.",
        "",
        "| net | TensorFlow | simulated | as ready | best order | within 70 % | predicted | resident | within 70 % |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
        *(row for row, _ in runs),
        "",
        "Copies to a host, for which a second CPU stands in, and nothing else, within 60 %: peaks of real runs, bytes.",
        f"Values and gradients are equal bit for bit on {sum(ok for _, ok in hosted)} of {len(hosted)} nets.",
        "",
        "| net | as ready | device, predicted | device, measured | host, predicted | host, measured |",
        "|---|--:|--:|--:|--:|--:|",
        *(row for row, _ in hosted),
        "",
        f"A file of {LARGE_NODES:,} nodes, and one that levels change:",
        "",
        "| work | processor seconds |",
        "|---|--:|",
        *large_rows(),
        *changed_rows(),
    ]
    print("\n".join(lines))
    write_section("Graphs of TensorFlow", "python benchmarks/bench_tensorflow.py", "\n".join(lines))


if __name__ == "__main__":
    main()
