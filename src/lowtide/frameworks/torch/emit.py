"""Writing a captured program down again in the order of a plan."""

import operator

from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import _BoxedCodeGen  # pyright: ignore[reportPrivateUsage]

from lowtide.errors import PlanError
from lowtide.frameworks.torch.captured import attribute
from lowtide.frameworks.torch.in_place import InPlaceForm, in_place_forms
from lowtide.frameworks.torch.lowering import Lowered, lower_body
from lowtide.frameworks.torch.torch_internals import map_nodes
from lowtide.plan import Plan


def emit(module: GraphModule, lowered: Lowered, plan: Plan, *, boxed: bool) -> GraphModule:
    """Return a module that runs the ops of a plan, in-place pairs taken, and drops every tensor at its last use.

    Views are made right before their first reader, elements of a multi-output op right after it, so that neither
    holds memory longer than the plan says. With `boxed` the module takes one list of tensors, which it empties, so
    that nothing else keeps its inputs alive. Subgraphs follow their own plans.
    """
    emitter = _Emitter(module, lowered)
    pairs = {position: taken for position, _, taken in plan.taken_pairs()}
    for position, op in enumerate(plan.order().tolist()):
        emitter.run(op, pairs.get(position, ()))
    graph = emitter.finish()
    if boxed:
        graph.set_codegen(_BoxedCodeGen())
    emitted = GraphModule(module, graph, class_name="Planned")
    for name, callee in plan.callees.items():
        body = attribute(module, name)
        emitted.set_submodule(name, emit(body, lower_body(body), callee, boxed=False))
    return emitted


class _Emitter:
    def __init__(self, module: GraphModule, lowered: Lowered) -> None:
        self._source = module.graph
        self._lowered = lowered
        self._target = Graph()
        self._made: dict[Node, Node] = {}
        self._is_op = {op.node for op in lowered.ops}
        self._views_of: dict[int, list[Node]] = {}
        """Per buffer, the views made of its present contents: a second run of its op outdates them."""
        for node in self._source.find_nodes(op="placeholder"):
            self._made[node] = self._target.node_copy(node)

    def run(self, op: int, pairs: tuple[tuple[int, int], ...]) -> None:
        """Append one run of an op."""
        lowered_op = self._lowered.ops[op]
        node = lowered_op.node
        if node in self._made:
            self._forget_views(lowered_op.writes)
        form = next((f for f in in_place_forms(lowered_op, self._lowered) if (f.read, f.write) in pairs), None)
        self._made[node] = self._copy(node) if form is None else self._copy_in_place(node, form)
        for user in node.users:
            if _is_element(user, node) and user.users:
                self._made[user] = self._target.node_copy(user, self._value)

    def finish(self) -> Graph:
        """Append the output and return the graph."""
        (output,) = self._source.find_nodes(op="output")
        self._target.node_copy(output, self._value)
        return self._target

    def _copy(self, node: Node) -> Node:
        return self._target.node_copy(node, self._value)

    def _copy_in_place(self, node: Node, form: InPlaceForm) -> Node:
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), self._value)
        if form.out_argument is not None:
            kwargs = {**kwargs, form.out_argument: self._value(form.operand)}
        copied = self._target.call_function(form.target, args, kwargs)
        copied.meta = dict(node.meta)
        return copied

    def _value(self, node: Node) -> Node:
        """Return the node's newest copy; what is no op (a view, an attribute) is made here, at its first use."""
        waiting = [node]
        while waiting:
            last = waiting[-1]
            missing = [argument for argument in last.all_input_nodes if argument not in self._made]
            if last in self._made or not missing:
                waiting.pop()
                if last not in self._made:
                    self._make_view(last)
            else:
                waiting.extend(missing)
        return self._made[node]

    def _make_view(self, node: Node) -> None:
        if node in self._is_op:
            raise PlanError(f"the plan reads '{node.name}' before it runs it; verify the plan")
        self._made[node] = self._target.node_copy(node, self._made.__getitem__)
        for buffer in self._lowered.buffers_of[node]:
            self._views_of.setdefault(buffer, []).append(node)

    def _forget_views(self, buffers: list[int]) -> None:
        for buffer in buffers:
            for view in self._views_of.pop(buffer, ()):
                self._made.pop(view, None)


def _is_element(user: Node, node: Node) -> bool:
    return user.target is operator.getitem and user.args[0] is node
