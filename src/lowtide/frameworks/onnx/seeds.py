"""Seeds for random nodes that have none, so that two orders of one model can be compared.

ONNX Runtime seeds such a node by its place in the file and, unless told otherwise, by the clock.
"""

import zlib

from onnx import ModelProto, NodeProto, helper

from lowtide.frameworks.onnx.operators import all_nodes, attribute_of, operator_of
from lowtide.frameworks.onnx.tables import RANDOM

_INTEGER_SEEDS = frozenset({"Dropout", "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout", "Sampling"})


def with_seeds(model: ModelProto) -> ModelProto:
    """Return the model with a seed, made from its result's name, on every random node that has none."""
    if not any(_lacks_seed(node) for node in all_nodes(model.graph)):
        return model
    seeded = ModelProto()
    seeded.CopyFrom(model)
    for node in all_nodes(seeded.graph):
        if _lacks_seed(node):
            seed = zlib.crc32(node.output[0].encode()) % 2**20
            node.attribute.append(
                helper.make_attribute("seed", seed if node.op_type in _INTEGER_SEEDS else float(seed))
            )
    return seeded


def _lacks_seed(node: NodeProto) -> bool:
    operator = operator_of(node)
    return (operator in RANDOM or operator == ("", "Dropout")) and attribute_of(node, "seed") is None
