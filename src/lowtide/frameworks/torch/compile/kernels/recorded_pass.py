"""The kernels of one pass, recorded after fusion and ordering."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch.fx import Node

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.graph import Graph
from lowtide.frameworks.torch.compile.fusion.kernel_graph import KnownInputs, graph_of_kernels
from lowtide.frameworks.torch.internals.aot_autograd import must_save
from lowtide.frameworks.torch.internals.kernels import (
    Form,
    KernelNode,
    KernelStorage,
    bytes_moved_by,
    called_by,
    forms_of_values,
    has_effects,
    ordered_call,
    origins_of,
    overwrites_inputs,
    source_graph,
    source_values,
    unpacked_tuple,
    writes_into_others,
)
from lowtide.frameworks.torch.reading.costs import flops_of, product_dtype_of, work_of
from lowtide.frameworks.torch.reading.effects import keeps_order
from lowtide.frameworks.torch.reading.lowering import LASTS
from lowtide.frameworks.torch.reading.outlined import Work, outlined_by
from lowtide.frameworks.torch.reading.read import kind_of
from lowtide.frameworks.torch.reading.repeatable_draws import is_repeatable
from lowtide.frameworks.torch.rewrites.stored_values import AS_STORED


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPass:
    """The kernels of one pass in execution order. Sequences have an entry per kernel."""

    graph: Graph
    kinds: Sequence[str]
    """The op of PyTorch's own kernel, or Inductor's name for the kind."""
    work: Sequence[Sequence[Work]]
    """The kernel's work, or that of each kernel of its outlined program."""
    run_once: Sequence[Collection[str]]
    """Buffers that must not be recomputed: random draws, effects, the user's saved values."""
    sources: Sequence[Mapping[str, Collection[str]]]
    """The buffers from which each value can be computed alone; empty if unknown."""
    is_part: Sequence[bool]
    """Whether it writes into another kernel's buffer."""
    overwrites: Sequence[bool]
    """Whether it overwrites inputs, such as running statistics."""
    origins: Sequence[Sequence[str]]
    calls: Sequence[str]
    """The FX node of PyTorch's own kernel, "" for loops."""
    values: Mapping[str, str]
    """The FX value of each buffer."""
    forms: Mapping[str, Form]
    """Fixed sizes and strides of buffers' values."""
    storages: Mapping[str, KernelStorage]
    """By FX names before Inductor's passes."""
    peak_bytes: int
    """Exact peak, with inputs that the pass frees, without the caller's memory."""


def runs_once(node: Node) -> bool:
    node = ordered_call(node)
    if node.target in AS_STORED:
        return False
    return must_save(node) or (keeps_order(node) and not is_repeatable(node))


def recorded_pass(
    nodes: Sequence[KernelNode], given: KnownInputs, storages: Mapping[str, KernelStorage], peak_bytes: int
) -> RecordedPass:
    """Return the kernels of the pass being compiled."""
    graph = graph_of_kernels(nodes, given)
    names = set(graph.buffer_names)
    value_of = {name: node for name, node in source_values().items() if name in names}
    stored = frozenset(value_of.values())
    calls = [_computed_by(node) for node in nodes]
    origins = [origins_of(node) for node in nodes]
    by_op = zip(nodes, calls, origins, strict=True)
    known = {**_results(storages, names), **value_of}
    buffers_of = _buffers_of(known, graph)
    used = frozenset(_names(graph, [*graph.reads.values.tolist(), *np.flatnonzero(~graph.freeable).tolist()]))
    return RecordedPass(
        graph=graph,
        kinds=[kind if call is None else kind_of(call) for kind, call in zip(graph.op_kinds, calls, strict=True)],
        work=[_work(node, call) for node, call in zip(nodes, calls, strict=True)],
        run_once=[
            _run_once(node, call is not None, made_from, _written(graph, op), value_of, stored)
            for op, (node, call, made_from) in enumerate(by_op)
        ],
        sources=[_sources(graph, op, known, buffers_of, used) for op in range(graph.n_ops)],
        is_part=[writes_into_others(node) for node in nodes],
        overwrites=[overwrites_inputs(node) for node in nodes],
        origins=[[each.name for each in made_from] for made_from in origins],
        calls=["" if call is None else call.name for call in calls],
        values={name: node.name for name, node in value_of.items()},
        forms=forms_of_values(),
        storages=storages,
        peak_bytes=peak_bytes,
    )


def work_of_kernels(nodes: Sequence[KernelNode]) -> list[Work]:
    return [work for node in nodes for work in _work(node, _computed_by(node))]


def _work(node: KernelNode, call: Node | None) -> tuple[Work, ...]:
    if unpacked_tuple(node) is not None:
        return (Work(0),)
    if call is not None and outlined_by(call) is not None:
        return work_of(call)
    flops, dtype = (0, "") if call is None else (flops_of(call), product_dtype_of(call))
    return (Work(bytes_moved_by(node), flops, dtype),)


def _computed_by(node: KernelNode) -> Node | None:
    """Return a PyTorch kernel's FX node, looking through stores."""
    call = called_by(node)
    while call is not None and call.target in AS_STORED:
        call = call.all_input_nodes[0]
    return call


def _written(graph: Graph, op: OpId) -> set[str]:
    return _names(graph, graph.writes[op].tolist())


def _names(graph: Graph, buffers: Iterable[BufferId]) -> set[str]:
    return {str(graph.buffer_names[buffer]) for buffer in buffers}


def _results(storages: Mapping[str, KernelStorage], names: Collection[str]) -> dict[str, Node]:
    nodes = {node.name: node for node in source_graph().graph.nodes}
    return {storage.name: nodes[name] for name, storage in storages.items() if storage.name in names and name in nodes}


def _buffers_of(value_of: Mapping[str, Node], graph: Graph) -> dict[Node, list[str]]:
    found: dict[Node, list[str]] = {}
    for name, node in value_of.items():
        found.setdefault(node, []).append(name)
    known = set(graph.buffer_names)
    for node in source_graph().graph.find_nodes(op="placeholder"):
        found.setdefault(node, [node.name] if node.name in known else [])
    return found


def _sources(
    graph: Graph, op: OpId, value_of: Mapping[str, Node], buffers_of: Mapping[Node, Sequence[str]], used: frozenset[str]
) -> dict[str, set[str]]:
    """Return the buffers from which each value of a kernel can be computed; empty if unknown."""
    written, given = _written(graph, op), _names(graph, graph.reads[op].tolist())
    values = {name for name in written if name in value_of and buffers_of[value_of[name]] == [name]}
    if len(values) < 2 or not used.isdisjoint(written - values):
        return {}
    found: dict[str, set[str]] = {}
    for name in sorted(values, key=value_of.__getitem__):
        within = _computed_within(value_of[name], buffers_of)
        found[name] = {each for node in within for read in node.all_input_nodes for each in buffers_of.get(read, ())}
    return found if set().union(*found.values()) - values == given - written else {}


def _run_once(
    node: KernelNode,
    is_call: bool,
    origins: Sequence[Node],
    written: set[str],
    value_of: Mapping[str, Node],
    stored: Collection[Node],
) -> set[str]:
    if is_call and overwrites_inputs(node):
        return written
    if any(each.op == "call_function" and runs_once(each) for each in origins):
        return {name for name in written if name not in value_of or _needs_single_run(value_of[name], stored)}
    return written if has_effects(node) and not is_call else set()


def _needs_single_run(value: Node, stored: Collection[Node]) -> bool:
    """Return whether a value depends on a node that runs once, without a stored value in between.

    Copies of overwritten inputs do not count: the backward pass saves those it needs.
    """
    return any(
        node.op == "call_function" and runs_once(node) and (node is value or LASTS not in node.meta)
        for node in _computed_within(value, stored)
    )


def _computed_within(value: Node, stored: Container[Node]) -> Iterator[Node]:
    """Yield a value and the nodes between it and stored values."""
    waiting, seen = [value], set[Node]()
    while waiting:
        yield (node := waiting.pop())
        new = [each for each in node.all_input_nodes if each not in seen and each not in stored]
        seen.update(new)
        waiting.extend(new)
