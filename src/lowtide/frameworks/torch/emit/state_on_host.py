"""A step with optimizer state and parameters on the host: on the device only during their uses, or updated there."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch.fx import Graph, Node

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph as Engine
from lowtide.engine.offload.updates import Update
from lowtide.engine.planning.program import ALL
from lowtide.frameworks.torch.capture.step.optimizer_state import OptimizerState
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.emit.copied_state import calls_by_storage, copy_parameter, copy_state
from lowtide.frameworks.torch.emit.transfers import HOST
from lowtide.frameworks.torch.emit.updates_on_host import move_updates
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.internals.host_memory import home_of
from lowtide.frameworks.torch.internals.nodes import graph_module, value_of
from lowtide.frameworks.torch.internals.tensors import bytes_of, storage_key
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.read import Reading

_LEAST_BYTES = 1024
"""Smaller state stays on the device: starting a copy takes longer than running it."""


ChooseUpdates = Callable[[Engine, Sequence[BufferId], Sequence[BufferId]], list[Update]]
"""Returns the updates to run on the host, for a graph, its state and its parameters there."""


def put_state_on_host(reading: Reading, share: int, choose: ChooseUpdates | None = None) -> Captured | None:
    """Return a step with `share` eighths of its optimizer state on the host; None if impossible.

    The state of the parameters with the most state comes first. A share above `ALL` also moves that many eighths of the
    parameters, the largest first. State is copied to the device before its update and back afterwards, in rows if the
    update is in chunks of rows, and so are parameters, which are copied for the uses before, too. Updates from `choose`
    run on the host instead, if all their tensors have one form; None without such updates. Distributed parameters,
    several devices and other programs are not supported, nor parameters of a step that accumulates gradients or runs
    `after_update` unplanned.
    """
    captured = reading.captured
    binding = captured.binding
    if not isinstance(binding, TrainingStepBinding):
        return None
    chosen = _largest(binding.state, min(share, ALL))
    moved = _parameters(binding, share - ALL)
    if not (chosen or moved) or (share > ALL and not moved):
        return None
    first = len(binding.modules.labels())
    places = [first + entry for entry in chosen]
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
    forms = list(binding.forms)
    for place in (*moved, *places):
        dtype, shape, strides, device = forms[place]
        forms[place] = dtype, shape, strides, HOST if device.type == "cuda" else device
    homes = {place: binding.forms[place][-1] for place in moved}
    return replace(
        captured,
        graph_module=graph_module(captured.graph_module, graph),
        binding=replace(binding, on_host=frozenset(chosen), parameters_on_host=homes, forms=tuple(forms)),
        on_host=(*moved, *places),
    )


def _move_updates(
    graph: Graph,
    copies: dict[Node, Node],
    reading: Reading,
    places: Sequence[int],
    parameters: Sequence[int],
    choose: ChooseUpdates,
) -> set[int]:
    """Move updates to the host. Return the positions of their state, and of the parameters that it overwrites there."""
    module, lowered = reading.captured.graph_module, reading.lowered
    placeholders = module.graph.find_nodes(op="placeholder")
    state, others = (
        {lowered.buffers_of[placeholders[place]][0]: place for place in each} for each in (places, parameters)
    )
    moved = move_updates(graph, copies, module, lowered, choose(reading.graph, list(state), list(others)))
    place_of = {**state, **others}
    return {place_of[buffer] for update in moved for buffer in update.state}


def _parameters(binding: TrainingStepBinding, share: int) -> list[int]:
    """Return positions of the largest module tensors on the device, with a share of all their bytes.

    None of them shares its storage: tensors move one by one.
    """
    live = binding.modules.live()
    devices = set(map(home_of, binding.state.parameters()))
    is_one_call = binding.part.calls == 1 and not binding.keeps_after_update
    if share <= 0 or not is_one_call or len(devices) > 1 or any(local_part(tensor) is not tensor for tensor in live):
        return []
    sizes = [bytes_of(tensor) for tensor in live]
    alone = Counter(map(storage_key, live))
    large = [
        place
        for place, tensor in enumerate(live)
        if sizes[place] >= _LEAST_BYTES and binding.forms[place][-1] in devices and alone[storage_key(tensor)] == 1
    ]
    wanted = sum(sizes[place] for place in large) * share / ALL
    chosen: list[int] = []
    for place in sorted(large, key=lambda place: (-sizes[place], place)):
        if sum(sizes[place] for place in chosen) >= wanted:
            break
        chosen.append(place)
    return sorted(chosen)


def _largest(state: OptimizerState, share: int) -> list[int]:
    """Return state entries of the parameters with the most state, with a share of all bytes."""
    parameters = state.parameters()
    if any(local_part(parameter) is not parameter for parameter in parameters):
        return []
    devices = set(map(home_of, parameters))
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
