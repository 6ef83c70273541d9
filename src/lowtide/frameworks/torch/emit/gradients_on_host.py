"""Gradients that wait on the host between the calls of an accumulating step."""

from collections.abc import Mapping, Sequence

from torch.fx import Graph, Node

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.emit.copied_state import copy_back, copy_gradient, copy_state, node_name
from lowtide.frameworks.torch.emit.transfers import like
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.tensors import storage_key

Inputs = tuple[tuple[str, Lifetime], ...]


def move_gradients(
    graph: Graph,
    inputs: Inputs,
    binding: TrainingStepBinding,
    gradients: Sequence[int],
    calls: Mapping[int, Sequence[Node]],
) -> tuple[Inputs, list[int]]:
    """Let some received gradients of a call wait on the host. Return the new inputs, and the places of these.

    The memory of these gradients is an input of every call. `calls` are those that touch each storage.
    """
    if not gradients:
        return inputs, []
    labels, first = binding.modules.labels(), len(binding.forms)
    names = [f"{labels[binding.updated[position]]}.grad" for position in binding.received]
    if binding.part.first:
        _copy_results(graph, first, gradients, names)
        more = tuple((names[index], Lifetime.PERSISTENT) for index in gradients)
        return (*inputs[:first], *more, *inputs[first:]), list(range(first, first + len(more)))
    placeholders = graph.find_nodes(op="placeholder")
    places = [first + index for index in gradients]
    for place in places:
        copy = copy_gradient if binding.part.last else copy_state
        given = placeholders[place]
        copy(graph, given, calls.get(storage_key(value_of(given)), []), inputs[place][0])
    moved = tuple(
        (name, Lifetime.PERSISTENT if place in places else lifetime) for place, (name, lifetime) in enumerate(inputs)
    )
    return moved, places


def _copy_results(graph: Graph, first: int, gradients: Sequence[int], names: Sequence[str]) -> None:
    (output,) = graph.find_nodes(op="output")
    results = list(output.args[0])
    last = graph.find_nodes(op="placeholder")[first - 1]
    for index in gradients:
        gradient = results[1 + index]
        with graph.inserting_after(last):
            last = graph.placeholder(f"waiting_{node_name(names[index])}")
        last.meta["val"] = like(value_of(gradient), value_of(gradient).device)
        copy_back(graph, last, gradient, gradient, names[index])
    output.args = ([each for place, each in enumerate(results) if place - 1 not in set(gradients)],)
