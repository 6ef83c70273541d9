"""Nodes that TensorFlow's oneDNN pass makes one of, whatever waits for either: nothing may run between them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from lowtide.frameworks.tensorflow.operators.kinds import BIAS_GRADIENT, FILTER_GRADIENT
from lowtide.frameworks.tensorflow.reading.body import NodeBody

Other = TypeVar("Other")


def fused_pairs(body: NodeBody, needed: Sequence[bool]) -> dict[int, int]:
    """Return, per gradient of a bias, the gradient of a filter from the same values: on CPUs the two become one node.

    The pass does not look at control edges, and a way from one to the other over a third node becomes a cycle.
    Source: GetConv2DBackpropFilterOrBiasAddGrad in mkl_layout_pass.cc of TensorFlow.
    """
    filters = {
        body.data[place][2]: place
        for place, node in enumerate(body.nodes)
        if needed[place] and node.op == FILTER_GRADIENT and len(body.data[place]) > 2
    }
    return {
        place: filters[body.data[place][0]]
        for place, node in enumerate(body.nodes)
        if needed[place] and node.op == BIAS_GRADIENT and body.data[place] and body.data[place][0] in filters
    }


def after_their_pairs(body: NodeBody, pairs: dict[int, int]) -> NodeBody:
    """Return a body in which gradients of biases wait for those of filters that they become one node with."""
    controls = list(body.controls)
    for place, other in pairs.items():
        controls[place] = [*controls[place], other]
    return replace(body, controls=controls)


def side_by_side(steps: Sequence[int | Other], pairs: dict[int, int]) -> list[int | Other]:
    """Return a sequence of runs of nodes, and of other steps, in which the nodes of a pair follow one another."""
    later = {other: place for place, other in pairs.items()}
    joined: list[int | Other] = []
    for step in steps:
        if not isinstance(step, int):
            joined.append(step)
        elif step not in pairs:
            joined.append(step)
            if step in later:
                joined.append(later[step])
    return joined
