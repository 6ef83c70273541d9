"""A training step compiled by Inductor in two passes, with plans of its kernels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from lowtide.core.errors import LowtideError, UnsupportedError, UsageError, one_line
from lowtide.engine.graph import Lifetime
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.capture.step.optimizer_state import ScalarSetting
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.compile.step_passes import GivenGraph
from lowtide.frameworks.torch.compile.with_inductor import compile_step_with_inductor
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.compiling import one_at_a_time
from lowtide.frameworks.torch.internals.fake_tensors import new_fake_mode, tracing_in
from lowtide.frameworks.torch.internals.nodes import graph_module, map_nodes, value_of
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.reading.captured import Captured, CaptureMismatchError
from lowtide.frameworks.torch.reading.effects import mutated_arguments
from lowtide.frameworks.torch.training.repeated_draws import repeated_draws, sets_random_state

aten = torch.ops.aten
_SUMS = (aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.sub_.Tensor)
"""Inductor drops their factor when it merges a product and such a sum (PyTorch 2.13)."""
_NOT_MERGED = {"cse": False, "enable_autograd_cache": False}


@one_at_a_time
def compiled_step(captured: Captured, options: Options) -> tuple[Applied, PlannedModule]:
    """Return a captured step compiled within its budget, and its planned program.

    Percentages refer to Inductor's step without recomputation. If plans of its kernels miss the budget, chunks are
    tried; the version with the smallest excess is returned, with a warning. Raises UnsupportedError if Inductor fails.
    """
    binding = captured.binding
    if not isinstance(binding, TrainingStepBinding):
        raise UsageError("only training steps can be compiled here")
    scalars = binding.state.scalars
    graph, constants = _for_inductor(captured.graph_module, scalars.entries, scalars.live(binding.state.optimizer))
    module = graph_module(captured.graph_module, graph)
    placeholders = captured.graph_module.graph.find_nodes(op="placeholder")
    places = [place for place in range(len(placeholders)) if place not in constants]
    lifetimes = [captured.inputs[place][1] for place in places]
    mode = new_fake_mode()
    with mode:
        inputs = [_stand_in(value_of(placeholders[place])) for place in places]
    held = {place for place, lifetime in enumerate(lifetimes) if lifetime is Lifetime.PERSISTENT}
    given = GivenGraph(module, inputs, held)
    try:
        with torch.no_grad(), tracing_in(mode), patched_autograd(_NOT_MERGED):
            compiled, planned = compile_step_with_inductor(given, options, captured.name)
    except LowtideError:
        raise
    except Exception as error:  # Inductor's own errors have no common class
        raise UnsupportedError(
            f"Inductor cannot compile the step: {type(error).__name__}: {one_line(error)}; use compiler='eager'"
        ) from error
    first_scalar = len(placeholders) - len(scalars.entries)
    rates = {place: torch.empty((), dtype=torch.float64) for place in places if place >= first_scalar}

    def run(sources: list[Any]) -> list[Any]:
        if any(sources[place] != value for place, value in constants.items()):
            raise CaptureMismatchError("the optimizer's settings changed since the step was compiled; capture again")
        taken = [rates[place].fill_(sources[place]) if place in rates else sources[place] for place in places]
        sources.clear()
        with torch.no_grad():
            return list(compiled(taken))

    return Applied(captured, planned.module, run), planned


def result_of_kernels(planned: PlannedModule) -> Result:
    """Return a compiled step's plan, with its kernels' exact peaks."""
    result, space = planned.result, planned.graph.spaces[0].name
    needed = max(planned.kernel_peaks)
    own = needed if planned.own_peak_bytes is None else planned.own_peak_bytes
    return replace(
        result,
        status="feasible",
        plan=replace(result.plan, claims=(), status="feasible"),
        baseline_peak_bytes={**result.baseline_peak_bytes, space: own},
        peak_bytes={**result.peak_bytes, space: needed},
        lower_bound_bytes=dict.fromkeys(result.lower_bound_bytes, 0),
    )


def _for_inductor(
    module: GraphModule, entries: Sequence[ScalarSetting], values: Sequence[float]
) -> tuple[FxGraph, dict[int, float]]:
    """Return the graph for Inductor, and its constant settings by position."""
    graph = FxGraph()
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
    firsts = repeated_draws(module.graph)
    drawn = dict[Node, Node]()
    for node in module.graph.nodes:
        if node in firsts:
            copies[node] = _drawn_again(graph, node, drawn[firsts[node]], copies)
        elif node.op != "placeholder" and not sets_random_state(node):
            copies[node] = _copied(graph, node, copies)
            if node in firsts.values():
                drawn[node] = graph.call_function(aten.clone.default, (copies[node],))
    return graph, constants


def _copied(graph: FxGraph, node: Node, copies: Mapping[Node, Any]) -> Node:
    args, kwargs = map_nodes((node.args, dict(node.kwargs)), copies.__getitem__)
    if node.target in _SUMS and "alpha" in kwargs:
        args = (args[0], graph.call_function(aten.mul.Tensor, (args[1], kwargs["alpha"])))
        kwargs = dict[str, Any]()
    return graph.create_node(node.op, node.target, args, kwargs, name=node.name)


def _drawn_again(graph: FxGraph, node: Node, first: Node, copies: Mapping[Node, Any]) -> Node:
    if not mutated_arguments(node):
        return first
    return graph.call_function(aten.copy_.default, (copies[node.all_input_nodes[0]], first))


def _stand_in(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        return torch.empty((), dtype=torch.float64)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
