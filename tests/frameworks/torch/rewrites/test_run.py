"""The runner derives values of new nodes, and refuses broken programs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import RewriteError
from lowtide.frameworks.torch.internals.nodes import make_values_fake
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from tests.frameworks.torch.rewrites.examples import trace
from tests.frameworks.torch.rewrites.running import planned_layout, run

aten = torch.ops.aten


@dataclass(frozen=True)
class Edit(Rewrite[Node]):
    """An edit of the nodes with a target."""

    name = "edit"
    source = "This test."
    target: Any
    edit: Callable[[GraphModule, Node], object]

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return list(module.graph.find_nodes(op="call_function", target=self.target))

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        for node in sites:
            self.edit(module, node)
        return module


@dataclass(frozen=True)
class Loose(Edit):
    """The same edit, declared to change inputs and outputs."""

    preserves = Preserves("everything", inputs=False, outputs=False)


@dataclass(frozen=True)
class Renamed(Rewrite[Node]):
    """Replace a sine by a cosine with the name of an erased node."""

    name = "renamed"
    source = "This test."

    def sites(self, module: GraphModule) -> Sequence[Node]:
        return list(module.graph.find_nodes(op="call_function", target=pow))

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        graph, made = Graph(), dict[Node, Node]()
        for node in module.graph.nodes:
            if node.target is aten.sin.default:
                args = (made[node.args[0]],)
                made[node] = graph.create_node("call_function", aten.cos.default, args, name=sites[0].name)
            elif node not in sites:
                made[node] = graph.node_copy(node, made.__getitem__)
        return GraphModule(module, graph)


def program(x: torch.Tensor, state: torch.Tensor) -> Any:
    """Overwrite an input, and return a view of it and another result."""
    state.add_(x.exp())
    return state.view(-1), x.sin().mul_(2)


def traced() -> GraphModule:
    """Return the program as a graph."""
    return trace(program, torch.randn(2, 3), torch.randn(2, 3))


def replace_by(target: Any, *more: Any) -> Callable[[GraphModule, Node], object]:
    """Replace a node by another function of its first argument."""

    def edit(module: GraphModule, node: Node) -> None:
        with module.graph.inserting_before(node):
            made = module.graph.call_function(target, (node.args[0], *more))
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)

    return edit


def test_without_sites_the_program_is_returned_unchanged() -> None:
    module = traced()
    before = str(module.graph), planned_layout(module)
    assert run_rewrites(module, [Edit(aten.cos.default, replace_by(aten.exp.default))]) is module
    assert (str(module.graph), planned_layout(module)) == before


def test_new_nodes_get_values_and_in_place_ops_share_their_storages() -> None:
    module = run_rewrites(traced(), [Edit(aten.sin.default, replace_by(aten.cos.default))])
    given = {"x_1": torch.randn(2, 3), "state_1": torch.randn(2, 3)}
    assert planned_layout(module) == run(module, given).layout
    assert planned_layout(module).storages["mul_"] == ["cos_default"]


def test_a_new_node_with_the_name_of_an_old_one_without_value_gets_a_value() -> None:
    module = traced()
    with module.graph.inserting_before(next(iter(module.graph.nodes)).next):
        module.graph.create_node("call_function", pow, (2, 3), name="unknown")
    done = run_rewrites(module, [Renamed()])
    (made,) = done.graph.find_nodes(op="call_function", target=aten.cos.default)
    assert made.name == "unknown"
    assert made.meta["val"].shape == (2, 3)


@pytest.mark.parametrize(
    ("target", "edit", "broken"),
    [
        (aten.add_.Tensor, replace_by(aten.add.Tensor, 1), r"no longer overwrites \['state_1'\]"),
        (aten.view.default, replace_by(aten.clone.default), "output 0 was"),
        (aten.sin.default, replace_by(aten.sum.default), "output 1 was"),
        (aten.exp.default, lambda module, node: _move_last(module, node), "before it has been defined"),
    ],
)
def test_a_rewrite_that_breaks_the_program_is_refused(target: Any, edit: Any, broken: str) -> None:
    with pytest.raises(RewriteError, match=f"'edit' broke the program.*{broken}"):
        run_rewrites(traced(), [Edit(target, edit)])


def test_a_declared_change_is_not_refused() -> None:
    module = run_rewrites(traced(), [Loose(aten.sin.default, replace_by(aten.sum.default))])
    assert planned_layout(module).forms["mul_"] == [(torch.float32, torch.Size([]), ())]


def test_inputs_must_stay_overwritten_in_any_case() -> None:
    with pytest.raises(RewriteError, match="no longer overwrites"):
        run_rewrites(traced(), [Loose(aten.add_.Tensor, replace_by(aten.add.Tensor, 1))])


def test_real_values_become_fake_values_with_the_same_layout() -> None:
    module = traced()
    given = {"x_1": torch.randn(2, 3), "state_1": torch.randn(2, 3)}
    values: dict[str, Any] = {}

    class Keep(torch.fx.Interpreter):
        def run_node(self, n: Node) -> Any:
            values[n.name] = super().run_node(n)
            return values[n.name]

    Keep(module).run(*given.values())
    for node in module.graph.nodes:
        node.meta["val"] = values[node.name]
    real = planned_layout(module)
    make_values_fake(module.graph)
    assert planned_layout(module) == real
    held = values["state_1"].clone()
    run_rewrites(module, [Edit(aten.exp.default, replace_by(aten.cos.default))])
    assert torch.equal(values["state_1"], held)


def _move_last(module: GraphModule, node: Node) -> None:
    (output,) = module.graph.find_nodes(op="output")
    output.prepend(node)
