"""Files whose default order is a plan, so that the stock runtime follows the plan, too."""

import numpy as np
from onnx import GraphProto

from lowtide.frameworks.onnx.loading.reordered import NodeOrder
from lowtide.frameworks.onnx.reading.default_order import default_order_among
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.stock.frames import order_of_ops


def numbered_for_default_order(graph: GraphProto, translation: Translation, order: NodeOrder) -> NodeOrder | None:
    """Return an order of a file's nodes in which the runtime's default order runs the ops as `order` does, if found.

    The default order takes of what a node reads the last first: it mirrors a file, and mirrors it back. So what it
    makes of `order` is tried. None where that runs ops otherwise, as it may where values have several readers, where
    nodes stand twice, and for graphs with planned bodies. Complexity: that of `default_order`.
    """
    if order.names or order.inner:
        return None
    walked = default_order_among(graph, order.nodes)
    constant = set(order.nodes).difference(walked)
    numbered = [*(node for node in order.nodes if node in constant), *walked]
    runs, wanted = (order_of_ops(translation, nodes) for nodes in (default_order_among(graph, numbered), order.nodes))
    return NodeOrder(numbered, {}) if np.array_equal(runs, wanted) else None
