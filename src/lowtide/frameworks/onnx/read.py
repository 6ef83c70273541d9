"""ONNX models to lowtide graphs."""

from collections.abc import Mapping

from onnx import ModelProto

from lowtide.frameworks.onnx.check import check_model
from lowtide.frameworks.onnx.check_operators import check_operators
from lowtide.frameworks.onnx.check_text import check_text
from lowtide.frameworks.onnx.load import ModelSource, describe_source, load_model
from lowtide.frameworks.onnx.operators import domain_of
from lowtide.frameworks.onnx.scope import Context, Scope
from lowtide.frameworks.onnx.shapes import infer_types
from lowtide.frameworks.onnx.tensors import is_short
from lowtide.frameworks.onnx.translate import Translation, Translator
from lowtide.graph import Graph, Lifetime


def read(model: ModelSource, dims: Mapping[str, int] | None = None) -> Graph:
    """Read an ONNX model, from a file or an object, as ONNX Runtime runs it on the CPU; weights are never loaded.

    `dims` gives sizes to dynamic dimensions by name; one without a name is called after its input and place ("x.0").
    Views are contracted to their base, subgraphs become callees. `Graph.unmodeled` lists what could not be modeled.
    Raises MalformedInputError for a broken model, UnsupportedError for dynamic dimensions without a size (it lists
    all of them), UsageError for sizes that do not fit the model, GraphError for sizes no machine can hold.
    """
    return translate_model(load_model(model), dims or {}, describe_source(model)).graph


def translate_model(model: ModelProto, dims: Mapping[str, int], where: str) -> Translation:
    """Read a loaded model, named `where` in messages, and remember which nodes every op stands for; see `read`."""
    check_text(model, where)
    check_model(model)
    check_operators(model)
    typed = infer_types(model, dims, where).graph
    context = Context(
        model=model,
        functions={(function.domain, function.name): function for function in model.functions},
        opset=next((entry.version for entry in model.opset_import if not domain_of(entry.domain)), 1),
        short_weights={tensor.name: tensor for tensor in model.graph.initializer if is_short(tensor)},
    )
    scope = Scope(context, "", typed)
    scope.add_weights(model.graph)
    weights = {tensor.name for tensor in model.graph.initializer}
    weights.update(tensor.values.name for tensor in model.graph.sparse_initializer)
    for value in model.graph.input:
        if value.name not in weights:
            size = scope.bytes_of(value.name, "the inputs")
            scope.define(value.name, scope.add_buffer(value.name, size, Lifetime.INPUT))
    translator = Translator(scope, model.graph, typed)
    translator.collect()
    scope.add_inner_weights()
    scope.note_unmodeled()
    return translator.finish()
