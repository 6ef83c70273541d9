"""Field numbers of ONNX messages."""

GRAPH, METADATA_PROPS = 7, 14
"""Of ModelProto."""
KEY, VALUE = 1, 2
"""Of StringStringEntryProto."""
NODE, INITIALIZER, OUTPUT, VALUE_INFO, SPARSE_INITIALIZER = 1, 5, 12, 13, 15
"""Of GraphProto."""
ATTRIBUTE, NODE_METADATA = 5, 9
"""Of NodeProto."""
TENSOR, SUBGRAPH, TENSORS, SUBGRAPHS, SPARSE_TENSOR, SPARSE_TENSORS = 5, 6, 10, 11, 22, 23
"""Of AttributeProto."""
DIMS = 1
"""Of TensorProto."""
TENSOR_DATA = frozenset({4, 5, 6, 7, 9, 10, 11})
"""Of TensorProto: fields for elements."""
SPARSE_VALUES, SPARSE_INDICES = 1, 2
"""Of SparseTensorProto."""
