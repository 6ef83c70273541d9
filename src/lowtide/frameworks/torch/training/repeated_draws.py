"""Random draws that checkpointed regions of a step repeat."""

import torch
from torch.fx import Graph, Node

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.capture.step.step_binding import form_of
from lowtide.frameworks.torch.capture.tracing import GET_STATE, SET_STATE
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.effects import is_random


def sets_random_state(node: Node) -> bool:
    return node.target in (GET_STATE, SET_STATE)


def repeated_draws(graph: Graph) -> dict[Node, Node]:
    """Return the first draw of each draw repeated from a saved random state.

    Compilers that reorder draws can take its result. Raises UnsupportedError if a repeated region draws other numbers,
    or leaves another random state.
    """
    stream: list[Node] = []
    place = 0
    places: dict[Node, int] = {}
    found: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.target is GET_STATE:
            places[node] = place
        elif node.target is SET_STATE:
            (state,) = node.all_input_nodes
            place = places.get(state, -1)
        elif node.op == "call_function" and is_random(node):
            if place == len(stream):
                stream.append(node)
            elif not place >= 0 or not _draws_like(node, stream[place]):
                raise _not_repeated(node)
            else:
                found[node] = stream[place]
            place += 1
    if place != len(stream):
        raise _not_repeated(stream[-1] if stream else next(iter(graph.nodes)))
    return found


def _draws_like(node: Node, first: Node) -> bool:
    values = value_of(node), value_of(first)
    if node.target is not first.target or not all(isinstance(value, torch.Tensor) for value in values):
        return False
    return _options(node) == _options(first) and form_of(values[0]) == form_of(values[1])


def _options(draw: Node) -> list[object]:
    return [each for each in (*draw.args, *draw.kwargs.items()) if not isinstance(each, Node)]


def _not_repeated(node: Node) -> UnsupportedError:
    return UnsupportedError(
        f"a checkpointed region does not repeat the random draw '{node.name}'; use compiler='eager', or remove the "
        "checkpoints, since the plan recomputes what the budget needs"
    )
