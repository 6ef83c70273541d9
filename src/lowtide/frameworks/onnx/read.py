"""Read an ONNX model into a graph: check it, infer its shapes, translate its nodes."""

from collections.abc import Mapping

from onnx import ModelProto

from lowtide.engine.graph import Lifetime
from lowtide.frameworks.onnx.loading.check import check_model
from lowtide.frameworks.onnx.operators.nodes import domain_of, fed_inputs
from lowtide.frameworks.onnx.reading.scope import Context, Scope
from lowtide.frameworks.onnx.reading.translate import Translator
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.frameworks.onnx.shapes.infer import infer_types
from lowtide.frameworks.onnx.shapes.known_forms import known_forms
from lowtide.frameworks.onnx.shapes.skeleton import skeleton_of
from lowtide.frameworks.onnx.shapes.tensors import is_short


def read_model(model: ModelProto, dims: Mapping[str, int], where: str) -> Translation:
    """Return the graph of a model as ONNX Runtime runs it on the CPU, and the nodes behind its ops.

    Views share their base's buffer, subgraphs become callees, weights are never loaded. Raises as `OnnxModel` does;
    `where` names the model in messages.
    """
    check_model(model, where)
    skeleton = skeleton_of(model)
    typed = infer_types(model, skeleton, dims, where).graph
    context = Context(
        model=model,
        functions={(function.domain, function.name): function for function in model.functions},
        opset=next((entry.version for entry in model.opset_import if not domain_of(entry.domain)), 1),
        short_weights={tensor.name: tensor for tensor in model.graph.initializer if is_short(tensor)},
    )
    scope = Scope(context, "", typed, known_forms(model, skeleton))
    scope.add_weights(model.graph)
    for value in fed_inputs(model.graph):
        size = scope.bytes_of(value.name, "the inputs")
        scope.define(value.name, scope.add_buffer(value.name, size, Lifetime.INPUT))
    translator = Translator(scope, model.graph, typed)
    translator.collect()
    scope.add_inner_weights()
    scope.note_unmodeled()
    return translator.finish()
