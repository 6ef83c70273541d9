"""Translate ONNX models into graphs."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from onnx import GraphProto, ModelProto, NodeProto

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph, Lifetime
from lowtide.frameworks.onnx.loading.check import check_model
from lowtide.frameworks.onnx.operators.nodes import (
    default_opset,
    describe_node,
    domain_of,
    fed_inputs,
    input_names,
    operator_of,
)
from lowtide.frameworks.onnx.operators.tables import CONSTANTS, METADATA, VIEWS, in_place_pairs
from lowtide.frameworks.onnx.reading.callees import Callee, call_of
from lowtide.frameworks.onnx.reading.kernels import (
    draws_random,
    has_half,
    has_half_kernel,
    has_unknown_workspace,
    is_opaque,
    workspace_bytes,
)
from lowtide.frameworks.onnx.reading.scope import Context, ReadCounts, Scope
from lowtide.frameworks.onnx.reading.translation import Body, OpDraft, Translation
from lowtide.frameworks.onnx.shapes.infer import infer_types
from lowtide.frameworks.onnx.shapes.known_forms import forms_in, known_forms
from lowtide.frameworks.onnx.shapes.skeleton import skeleton_of
from lowtide.frameworks.onnx.shapes.tensors import is_short, short_constants


def read_model(model: ModelProto, dims: Mapping[str, int], where: str) -> Translation:
    """Return the graph of a model as ONNX Runtime runs it on the CPU, and the nodes behind its ops.

    Weights are never loaded. Raises as `OnnxModel`; `where` names the model in messages.
    """
    check_model(model, where)
    skeleton = skeleton_of(model)
    typed = infer_types(model, skeleton, dims, where).graph
    context = Context(
        model=model,
        functions={(function.domain, function.name): function for function in model.functions},
        opset=default_opset(model),
        short_weights={tensor.name: tensor for tensor in model.graph.initializer if is_short(tensor)},
    )
    scope = Scope(context, "", typed, known_forms(model, skeleton))
    scope.add_weights(model.graph)
    scope.add_inputs(fed_inputs(model.graph), "the inputs", Lifetime.INPUT)
    translator = _OnnxTranslator(scope, model.graph, typed)
    scope.add_copies_of_weights(model.graph)
    scope.complete()
    return translator.finish()


class _OnnxTranslator:
    """Translates nodes in order. The scope holds weights and inputs; the caller counts outputs in `in_caller`."""

    def __init__(self, scope: Scope, graph: GraphProto, typed: GraphProto, in_caller: Collection[str] = ()) -> None:
        self._scope = scope
        self._graph = graph
        self._typed = typed
        self._drafts: list[OpDraft] = []
        self._bodies: dict[str, Body] = {}
        self._in_caller = frozenset(in_caller)
        self._outputs = frozenset(value.name for value in graph.output)
        self._inputs = [input_names(node) for node in graph.node]
        self._consumed = self._outputs.union(*self._inputs)
        self._reads = ReadCounts(graph, self._inputs)
        self._constants = short_constants(graph)
        self._op_names = _unique_names(graph.node)
        self._writers: dict[int, OpDraft] = {}
        for position, node in enumerate(graph.node):
            self._add_node(position, node)

    def finish(self, *, keep_order: bool = False) -> Translation:
        """Build the graph; raises GraphError for impossible sizes."""
        casts = bool(self._scope.context.casts)
        for draft in self._drafts:
            self._scope.builder.add_op(
                draft.name,
                draft.kind,
                reads=draft.reads,
                writes=draft.writes,
                mutates=draft.mutates,
                in_place=draft.in_place,
                scratch_bytes=draft.scratch_bytes,
                pure=draft.may_rerun and not draft.fixed and not (casts and draft.has_half),
                ordered=draft.fixed or keep_order,
                callees=draft.callees,
            )
        graph = self._scope.builder.build()
        nodes = tuple(tuple(draft.nodes) for draft in self._drafts)
        scope = self._scope
        return Translation(graph, nodes, self._bodies, scope.values, scope.forms(), scope.context.has_unknown_sizes)

    @property
    def fixed(self) -> bool:
        return any(draft.fixed for draft in self._drafts)

    def _add_node(self, position: int, node: NodeProto) -> None:
        operator = operator_of(node)
        if operator in CONSTANTS:
            self._scope.add_weight(node.output[0], self._scope.bytes_of(node.output[0], "a constant"))
        elif operator in VIEWS and node.output[0] not in self._outputs and self._scope.is_tensor(node.input[0]):
            self._add_view(position, node)
        elif operator in METADATA:
            self._add_metadata(position, node)
        else:
            self._add_op(position, node)

    def _add_view(self, position: int, node: NodeProto) -> None:
        base, *operands = [self._scope.value(name) for name in node.input if name]
        keeps = [*base.keeps, *(b for value in operands for b in (value.buffer, *value.keeps) if b in self._writers)]
        self._scope.define(node.output[0], base.buffer, tuple(dict.fromkeys(keeps)))
        if node.output[0] not in self._consumed and not keeps and base.buffer in self._writers:
            self._writers[base.buffer].nodes.append(position)

    def _add_metadata(self, position: int, node: NodeProto) -> None:
        value = self._scope.value(node.input[0])
        if value.keeps:
            self._add_op(position, node)
            return
        draft = self._writers.get(value.buffer)
        if draft is None:
            draft = OpDraft(name=self._op_names[position], kind=node.op_type, nodes=[], reads=[])
            self._drafts.append(draft)
        draft.nodes.append(position)
        draft.may_rerun = False
        self._add_results(draft, node)

    def _add_op(self, position: int, node: NodeProto) -> None:
        values = [self._scope.value(name) for name in self._inputs[position]]
        bases = [value.buffer for value in values]
        reads = dict.fromkeys([*bases, *(buffer for value in values for buffer in value.keeps)])
        draft = OpDraft(name=self._op_names[position], kind=_kind_of(node), nodes=[position], reads=list(reads))
        opaque = is_opaque(node) and (node.domain, node.op_type) not in self._scope.context.functions
        draft.fixed = opaque or draws_random(node, self._constants)
        if opaque:
            self._scope.context.notes.append(
                f"{describe_node(node, position)} of domain {node.domain!r} is unknown: it keeps its order and its "
                "workspace is not modeled"
            )
        if (
            has_unknown_workspace(node, self._scope.types)
            and (node.domain, node.op_type) not in self._scope.context.functions
        ):
            self._scope.context.workspaces[node.op_type] += 1
        draft.has_half = has_half(node, self._scope.types)
        if draft.has_half and not has_half_kernel(node):
            self._scope.context.casts[node.op_type] += 1
        self._add_results(draft, node)
        # Unread results are never freed.
        draft.may_rerun = len(draft.writes) == 1 and self._consumed.issuperset(filter(None, node.output))
        draft.scratch_bytes = workspace_bytes(node, self._scope.types, self._scope.context.opset)
        self._call(draft, position, node)
        self._drafts.append(draft)

    def _call(self, draft: OpDraft, position: int, node: NodeProto) -> None:
        call = call_of(node, self._typed.node[position], position, self._scope)
        if call is None:
            return
        draft.kind = call.kind
        peak = 0
        for callee in call.callees:
            name = f"{self._scope.name}/{draft.name}/{callee.label}".lstrip("/")
            inner, fixed = _translate_callee(callee, name, self._scope)
            self._scope.builder.add_subgraph(name, inner.graph)
            draft.callees.append(name)
            draft.fixed |= fixed
            peak = max(peak, _given_peak(inner.graph))
            if callee.in_file:
                self._bodies[name] = Body(position, callee.label, inner)
        draft.scratch_bytes += call.scratch_bytes + self._bytes_of(call.collected)
        if call.carried:
            # At the end, results coexist with carried values of the last two runs.
            inside = peak - self._bytes_of([*call.carried, *call.collected])
            draft.scratch_bytes += max(0, 2 * self._bytes_of(call.carried) - max(0, inside))

    def _bytes_of(self, names: Sequence[str]) -> int:
        return sum(self._scope.sizes[self._scope.value(name).buffer] for name in names)

    def _add_results(self, draft: OpDraft, node: NodeProto) -> None:
        for position, name in enumerate(node.output):
            if not name:
                continue
            size = self._scope.bytes_of(name, f"{node.op_type} {draft.name!r}")
            source = self._source(node, position, size)
            if source is not None and self._reads[source] == 1:
                # The only reader overwrites the input.
                buffer = self._scope.value(source).buffer
                draft.mutates.append(buffer)
            elif name in self._in_caller:
                buffer = self._scope.add_buffer(name, size, Lifetime.PERSISTENT)
                draft.mutates.append(buffer)
            else:
                kept = name in self._outputs or name not in self._consumed
                buffer = self._scope.add_buffer(name, size, Lifetime.OUTPUT if kept else Lifetime.INTERMEDIATE)
                draft.writes.append(buffer)
                if source is not None:
                    draft.in_place.append((self._scope.value(source).buffer, buffer))
            self._scope.define(name, buffer)
            self._writers[buffer] = draft

    def _source(self, node: NodeProto, position: int, size: int) -> str | None:
        for source, target in in_place_pairs(operator_of(node)):
            if target == position and source < len(node.input) and node.output[position] not in self._outputs:
                name = node.input[source]
                buffer = self._scope.value(name).buffer if name else -1
                same = self._scope.same_form(name, node.output[position])
                read_once = [self._scope.value(other).buffer for other in node.input if other].count(buffer) == 1
                fits = same and 0 < size == self._scope.sizes[buffer]
                if fits and read_once and self._scope.lifetimes[buffer] == Lifetime.INTERMEDIATE:
                    return name
        return None


def _translate_callee(callee: Callee, name: str, outer: Scope) -> tuple[Translation, bool]:
    known = outer.known if callee.in_file else forms_in(callee.typed)
    scope = Scope(outer.context, name, callee.typed, known, outer)
    scope.add_weights(callee.graph)
    scope.add_inputs(callee.graph.input, "a body", callee.input_lifetime)
    translator = _OnnxTranslator(scope, callee.graph, callee.typed, callee.outputs_in_caller)
    return translator.finish(keep_order=not callee.in_file), translator.fixed


def _given_peak(graph: Graph) -> int:
    problem = Problem(graph)
    return int(problem.evaluate(problem.given_order()).peaks.sum())


def _kind_of(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if domain_of(node.domain) else node.op_type


def _unique_names(nodes: Sequence[NodeProto]) -> list[str]:
    given = Counter(node.name for node in nodes)
    taken = set(given)
    names: list[str] = []
    for position, node in enumerate(nodes):
        name = node.name
        if not name or given[name] > 1:
            name = f"{node.op_type}:{next(filter(None, node.output), position)}"
            while name in taken:
                name += "'"
            taken.add(name)
        names.append(name)
    return names
