"""A captured training step compiled by Inductor, its kernels in the order of least memory after fusion."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.capture.step.optimizer_state import ScalarSetting
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.settings import settings
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.fake_tensors import new_fake_mode, tracing_in
from lowtide.frameworks.torch.internals.inductor import compile_boxed
from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.reading.captured import CaptureMismatchError


def compile_step(
    planned: GraphModule, entries: Sequence[ScalarSetting], values: Sequence[float], options: Options, peaks: FusedPeaks
) -> Callable[[list[Any]], list[Any]]:
    """Return a function of the graph's inputs that runs a step compiled; random draws are those of eager.

    `entries` are the settings that are the graph's last inputs, with their present values. Learning rates may change
    from call to call; what the caller gives away ends at its last use. The function raises CaptureMismatchError where
    another setting has changed. What the graph runs again stays apart: kernels are fused within what `peaks` leaves to
    them. Raises UnsupportedError for what Inductor cannot compile, with what to do instead.
    """
    graph, constants = _for_inductor(planned, entries, values)
    mode = new_fake_mode()
    module = GraphModule(planned, graph)
    placeholders = planned.graph.find_nodes(op="placeholder")
    settings_from = len(placeholders) - len(entries)
    with mode:
        inputs = [_stand_in(value_of(node)) for place, node in enumerate(placeholders) if place not in constants]
    changes = {**settings(options, peaks), "fallback_random": True}
    if options.budget is not None:
        changes["fx_graph_cache"] = False  # what the kernels need is known only where they are made
    not_merged = {"cse": False, "enable_autograd_cache": False}
    try:
        with torch.no_grad(), tracing_in(mode), patched_autograd(not_merged):
            compiled = compile_boxed(module, inputs, changes)
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        raise UnsupportedError(
            f"Inductor cannot compile the step: {type(error).__name__}: {lines[0]}; use compiler='eager'"
        ) from error

    rates = {
        place: torch.empty((), dtype=torch.float64)
        for place in range(settings_from, len(placeholders))
        if place not in constants
    }

    def run(sources: list[Any]) -> list[Any]:
        if any(sources[place] != value for place, value in constants.items()):
            raise CaptureMismatchError("the optimizer's settings changed since the step was compiled; capture again")
        given = [
            rates[place].fill_(source) if place in rates else source
            for place, source in enumerate(sources)
            if place not in constants
        ]
        sources.clear()
        with torch.no_grad():
            return list(compiled(given))

    return run


def _for_inductor(
    module: GraphModule, entries: Sequence[ScalarSetting], values: Sequence[float]
) -> tuple[Graph, dict[int, float]]:
    """Return the graph as Inductor takes it, and the settings by place that are constants in it, no inputs.

    A learning rate comes as a tensor, from which the graph reads it.
    """
    graph = Graph()
    placeholders = module.graph.find_nodes(op="placeholder")
    first = len(placeholders) - len(entries)
    settings_by_place = dict(enumerate(zip(entries, values, strict=True), first))
    constants = {place: float(value) for place, (entry, value) in settings_by_place.items() if entry.key != "lr"}
    copies: dict[Node, Any] = {
        node: constants[place] if place in constants else graph.placeholder(node.name)
        for place, node in enumerate(placeholders)
    }
    for place in sorted(settings_by_place.keys() - constants.keys()):
        rate = copies[placeholders[place]]
        copies[placeholders[place]] = graph.call_function(torch.ops.aten._local_scalar_dense.default, (rate,))
    for node in module.graph.nodes:
        if node.op == "placeholder":
            continue
        args, kwargs = map_nodes((node.args, dict(node.kwargs)), copies.__getitem__)
        copies[node] = graph.create_node(node.op, node.target, args, kwargs, name=node.name)
    return graph, constants


def _stand_in(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return torch.empty((), dtype=torch.float64)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
