"""A program with parameters and optimizer state on the host."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.fx import Graph, Node

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph as Engine
from lowtide.engine.offload.state_in_graph import parts_to_move
from lowtide.engine.offload.updates import Update
from lowtide.engine.planning.program import ALL
from lowtide.frameworks.torch.capture.step.optimizer_state import OptimizerState
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.emit.copied_state import calls_by_storage, copy_parameter, copy_state
from lowtide.frameworks.torch.emit.gradients_on_host import move_gradients
from lowtide.frameworks.torch.emit.updates_on_host import move_updates
from lowtide.frameworks.torch.internals.host_memory import home_of
from lowtide.frameworks.torch.internals.nodes import graph_module, storages_of, value_of
from lowtide.frameworks.torch.internals.padded_parts import part_of
from lowtide.frameworks.torch.internals.pytree import tensors_in
from lowtide.frameworks.torch.internals.tensors import bytes_of, storage_key
from lowtide.frameworks.torch.reading.captured import Binding, Captured
from lowtide.frameworks.torch.reading.read import Reading

_LEAST_BYTES = 1024
"""Smaller state stays on the device: starting a copy takes longer than running it."""


ChooseUpdates = Callable[[Engine, Sequence[BufferId], Sequence[BufferId]], list[Update]]
"""Returns the updates to run on the host, for a graph, its state and its parameters there."""


def put_state_on_host(reading: Reading, share: int, choose: ChooseUpdates | None = None) -> Captured | None:
    """Return a program with `share` eighths of its optimizer state on the host; None if impossible.

    The state of the parameters with the most state comes first. A share above `ALL` also moves that many eighths of the
    parameters, see `parts_to_move`. If the step accumulates, waiting gradients come before parameters, each in
    quarters. Updates from `choose` run on the host, if all their tensors have one form; None without such updates.

    Several devices are not supported, nor parameters of a function that returns their gradients, or of a step that runs
    `after_update` unplanned.
    """
    captured = reading.captured
    binding = captured.binding
    of_gradients, of_parameters = _shares_of_others(binding, share - ALL)
    homes, gradients = _parameters(captured, of_parameters), _gradients(binding, of_gradients)
    moved = list(homes)
    chosen, places = list[int](), list[int]()
    if isinstance(binding, TrainingStepBinding):
        chosen = _largest(binding.state, min(share, ALL))
        places = [len(binding.modules.names) + entry for entry in chosen]
    if not (moved or gradients or (chosen and share <= ALL)):
        return None
    graph, copies = Graph(), dict[Node, Node]()
    graph.output(graph.graph_copy(captured.graph_module.graph, copies))
    placeholders = graph.find_nodes(op="placeholder")
    there = _move_updates(graph, copies, reading, places, moved, choose) if choose is not None else set[int]()
    if choose is not None and not there:
        return None
    calls = calls_by_storage(graph)
    for copy, each in ((copy_state, [place for place in places if place not in there]), (copy_parameter, moved)):
        for place in each:
            given = placeholders[place]
            copy(graph, given, calls.get(storage_key(value_of(given)), []), captured.inputs[place][0])
    inputs, waiting = captured.inputs, list[int]()
    if isinstance(binding, TrainingStepBinding):
        inputs, waiting = move_gradients(graph, captured.inputs, binding, gradients, calls)
        binding = binding.with_on_host(homes, chosen, gradients)
    else:
        binding = binding.with_on_host(homes)
    return replace(
        captured,
        graph_module=graph_module(captured.graph_module, graph),
        inputs=inputs,
        binding=binding,
        on_host=(*moved, *places, *waiting),
    )


def _shares_of_others(binding: Binding, more: int) -> tuple[float, float]:
    if not isinstance(binding, TrainingStepBinding) or binding.part.calls == 1:
        return 0.0, max(more, 0) / ALL
    half = ALL // 2
    return min(max(more, 0), half) / half, max(more - half, 0) / half


def _gradients(binding: Binding, share: float) -> list[int]:
    if not isinstance(binding, TrainingStepBinding) or share == 0:
        return []
    parameters = binding.state.parameters()
    parts = [part_of(parameters[position]) for position in binding.received]
    if len(set(map(home_of, parts))) != 1:
        return []
    large = [place for place, part in enumerate(parts) if bytes_of(part) >= _LEAST_BYTES]
    return sorted(large[index] for index in parts_to_move([bytes_of(parts[place]) for place in large], share))


def _move_updates(
    graph: Graph,
    copies: dict[Node, Node],
    reading: Reading,
    places: Sequence[int],
    parameters: Sequence[int],
    choose: ChooseUpdates,
) -> set[int]:
    """Move updates to the host. Return the positions of inputs that they overwrite there."""
    module, lowered = reading.captured.graph_module, reading.lowered
    placeholders = module.graph.find_nodes(op="placeholder")
    state, others = (
        {lowered.buffers_of[placeholders[place]][0]: place for place in each} for each in (places, parameters)
    )
    moved = move_updates(graph, copies, module, lowered, choose(reading.graph, list(state), list(others)))
    place_of = {**state, **others}
    return {place_of[buffer] for update in moved for buffer in update.state}


def _parameters(captured: Captured, share: float) -> dict[int, torch.device]:
    """Return positions and devices of module tensors that have a share of the bytes on the device.

    None of them shares its storage with another one, an input or a result: tensors move one by one.
    """
    live = captured.binding.movable() if share > 0 else []
    parts = list(map(part_of, live))
    homes = list(map(home_of, parts))
    devices = {home for home, tensor in zip(homes, live, strict=True) if isinstance(tensor, nn.Parameter)}
    if len(devices) != 1:
        return {}
    given = tensors_in([captured.example_args, captured.example_kwargs])
    users = Counter(map(storage_key, [*parts, *given]))
    placeholders = captured.graph_module.graph.find_nodes(op="placeholder")
    returned = storages_of(*captured.graph_module.graph.output_node().all_input_nodes)
    large = [
        place
        for place, tensor in enumerate(parts)
        if bytes_of(tensor) >= _LEAST_BYTES
        and homes[place] in devices
        and users[storage_key(tensor)] == 1
        and storage_key(value_of(placeholders[place])) not in returned
    ]
    sizes = [bytes_of(parts[place]) for place in large]
    chosen = [large[index] for index in parts_to_move(sizes, share)]
    return {place: homes[place] for place in sorted(chosen)}


def _largest(state: OptimizerState, share: int) -> list[int]:
    devices = set(map(home_of, map(part_of, state.parameters())))
    if len(devices) != 1:
        return []
    by_parameter: dict[int, list[int]] = {}
    for place, (parameter, _, form) in enumerate(state.entries):
        if bytes_of(form) >= _LEAST_BYTES and form.device in devices:
            by_parameter.setdefault(parameter, []).append(place)

    def size(places: Sequence[int]) -> int:
        return sum(bytes_of(state.entries[place].form) for place in places)

    wanted = sum(map(size, by_parameter.values())) * share / ALL
    chosen: list[int] = []
    for places in sorted(by_parameter.values(), key=size, reverse=True):
        if size(chosen) >= wanted:
            break
        chosen += places
    return sorted(chosen)
