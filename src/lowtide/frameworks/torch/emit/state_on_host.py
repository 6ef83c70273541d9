"""A training step with optimizer state on the host: each tensor is on the device only while its update uses it."""

from collections.abc import Sequence
from dataclasses import replace

from torch.fx import Graph, GraphModule

from lowtide.engine.planning.program import ALL
from lowtide.frameworks.torch.capture.step.optimizer_state import OptimizerState
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.emit.copied_state import copy_around_uses, uses_of_storages
from lowtide.frameworks.torch.emit.transfers import HOST
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.tensors import bytes_of, storage_key
from lowtide.frameworks.torch.reading.captured import Captured

_LEAST_BYTES = 1024
"""Smaller state stays on the device: a copy takes longer to start than to run."""


def put_state_on_host(captured: Captured, share: int) -> Captured | None:
    """Return a step with `share` eighths of its optimizer state on the host; None if none of it can be there.

    Parameters with the most state come first. Each state is copied to the device before its update and back after it,
    in rows if the update is in chunks of rows.
    State of distributed parameters, of several devices and of other programs stays where it is.
    """
    binding = captured.binding
    if not isinstance(binding, TrainingStepBinding):
        return None
    chosen = _largest(binding.state, share)
    if not chosen:
        return None
    first = len(binding.modules.labels())
    places = [first + entry for entry in chosen]
    graph = Graph()
    graph.output(graph.graph_copy(captured.graph_module.graph, {}))
    placeholders = graph.find_nodes(op="placeholder")
    uses = uses_of_storages(graph)
    for place in places:
        state = placeholders[place]
        copy_around_uses(graph, state, uses.get(storage_key(value_of(state))), captured.inputs[place][0])
    forms = list(binding.forms)
    for place in places:
        dtype, shape, strides, device = forms[place]
        forms[place] = dtype, shape, strides, HOST if device.type == "cuda" else device
    return replace(
        captured,
        graph_module=GraphModule(captured.graph_module, graph),
        binding=replace(binding, on_host=frozenset(chosen), forms=tuple(forms)),
        on_host=tuple(places),
    )


def _largest(state: OptimizerState, share: int) -> list[int]:
    """Return the entries of the parameters with the most state, which have at least a share of all bytes together."""
    parameters = state.parameters()
    if any(local_part(parameter) is not parameter for parameter in parameters):
        return []
    devices = {parameter.device for parameter in parameters}
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
