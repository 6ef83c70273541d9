"""Record what Mesh-TensorFlow's own scheduler makes of real models: its transformer, and a graph of TensorFlow.

It needs the environment of tests/oracles/record_mesh_tensorflow.py:

    mtf/bin/python tests/oracles/record_mesh_models.py tests/data/mesh_tensorflow_models.json.gz

With lowtide installed there as well, `--test` runs Mesh-TensorFlow's own scheduler_test.py with lowtide's function in
the place of its own, and compares what lowtide reads off the real objects with what they say themselves.

Every record holds a model's name, tensors as [name, bytes, bytes on one device of the mesh], the final tensors, ops as
[name, input tensors, output tensors] by tensor number, the order of LIST, and the peaks of NAIVE and LIST by the sizes
of `compute_memory_contents_under_schedule`, on the whole and on one device.
"""

import gzip
import json
import sys
import types
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.oracles.record_mesh_tensorflow import import_scheduler

LAYOUT = {"batch": "rows", "heads": "columns", "d_ff": "columns", "vocab": "columns"}
MESH = {"rows": 4, "columns": 2}


class _Anything(types.ModuleType):
    """A module in which every name is a class; only the modes of the estimator are ever looked at."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"TRAIN": "train", "EVAL": "eval", "PREDICT": "infer"})


def import_mesh() -> tuple[Any, Any, Any]:
    """Import the scheduler, the graph interface and the transformer, whose data sets and TPUs are not needed here."""
    scheduler = import_scheduler()
    import tensorflow  # pyright: ignore[reportMissingImports]
    import tensorflow.compat.v1 as tf  # pyright: ignore[reportMissingImports]

    tf.estimator = tensorflow.estimator = _Anything("estimator")
    for name in ("tensorflow_datasets", *(f"mesh_tensorflow.transformer.{part}" for part in ("utils", "dataset"))):
        sys.modules[name] = _Anything(name)
    from mesh_tensorflow.auto_mtf import graph_interface  # pyright: ignore[reportMissingImports]
    from mesh_tensorflow.transformer import transformer  # pyright: ignore[reportMissingImports]

    tf.disable_v2_behavior()
    return scheduler, graph_interface, transformer


def language_model(transformer: Any, n_layers: int, *, train: bool, decoder: bool = False) -> tuple[Any, list[Any]]:
    """Return a transformer of Mesh-TensorFlow, with its gradients or without, and its results."""
    import mesh_tensorflow as mtf  # pyright: ignore[reportMissingImports]
    import tensorflow.compat.v1 as tf  # pyright: ignore[reportMissingImports]
    from mesh_tensorflow.transformer import transformer_layers as layers  # pyright: ignore[reportMissingImports]

    def stack(*, cross: bool = False) -> Any:
        kinds = [layers.SelfAttention(num_heads=4, key_value_size=16)]
        kinds += [layers.EncDecAttention(num_heads=4, key_value_size=16)] if cross else []
        kinds += [layers.DenseReluDense(hidden_size=256)]
        return transformer.LayerStack(
            kinds * n_layers,
            sublayers_initial=[transformer.sublayer_dropout],
            sublayers_per_layer=[
                transformer.sublayer_rms_norm,
                transformer.sublayer_call_layer,
                transformer.sublayer_dropout,
                transformer.sublayer_residual,
            ],
            sublayers_final=[transformer.sublayer_rms_norm, transformer.sublayer_dropout],
        )

    def one(name: str, *, autoregressive: bool, output: int | None, cross: bool = False) -> Any:
        return transformer.Unitransformer(
            stack(cross=cross),
            d_model=64,
            input_vocab_size=256,
            output_vocab_size=output,
            autoregressive=autoregressive,
            max_length=32,
            name=name,
        )

    graph = mtf.Graph()
    mesh = mtf.Mesh(graph, "mesh")
    shape = mtf.Shape([mtf.Dimension("batch", 8), mtf.Dimension("length", 32)])
    with tf.Graph().as_default():
        tokens = [mtf.import_tf_tensor(mesh, tf.zeros([8, 32], tf.int32), shape=shape) for _ in range(2)]
        if decoder:
            model = transformer.Bitransformer(
                one("encoder", autoregressive=False, output=None),
                one("decoder", autoregressive=True, output=256, cross=True),
            )
        else:
            model = one("lm", autoregressive=True, output=256)
        mode = "train" if train else "eval"
        logits, loss = model.call_simple(
            *tokens, compute_loss=True, mode=mode, variable_dtype=mtf.VariableDType(tf.float32)
        )
        results = [loss]
        if train:
            results += mtf.gradients([loss], [variable.outputs[0] for variable in graph.trainable_variables])
        else:
            results.append(logits)
    return graph, results


def tensorflow_graph() -> tuple[Any, list[Any]]:
    """Return a graph of TensorFlow itself: two layers and their gradients."""
    import tensorflow.compat.v1 as tf  # pyright: ignore[reportMissingImports]

    graph = tf.Graph()
    with graph.as_default():
        x = tf.placeholder(tf.float32, [16, 64])
        first, second = (tf.constant(0.5, shape=shape) for shape in ([64, 128], [128, 8]))
        hidden = tf.nn.relu(tf.matmul(x, first))
        loss = tf.reduce_sum(tf.square(tf.matmul(hidden, second)))
        return graph, [loss, *tf.gradients(loss, [first, second])]


def models(transformer: Any) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield the name of each model, its graph and its results."""
    yield "transformer, 2 layers", *language_model(transformer, 2, train=False)
    yield "transformer, 2 layers, trained", *language_model(transformer, 2, train=True)
    yield "transformer, 6 layers, trained", *language_model(transformer, 6, train=True)
    yield "encoder and decoder, 2 layers each, trained", *language_model(transformer, 2, train=True, decoder=True)
    yield "layers of TensorFlow", *tensorflow_graph()


def record(name: str, interface: Any, scheduler: Any) -> dict[str, Any]:
    """Return the record of one model."""
    tensors = list(interface.get_all_tensor_names())
    numbers = {tensor: number for number, tensor in enumerate(tensors)}
    sizes = {tensor: interface.get_tensor_size(tensor) for tensor in tensors}
    on_device = {tensor: interface.get_tensor_size(tensor, LAYOUT, MESH) for tensor in tensors}
    ops = [
        [
            op,
            [numbers[tensor] for tensor in interface.get_operation_input_names(op)],
            [numbers[tensor] for tensor in interface.get_operation_output_names(op)],
        ]
        for op in interface.get_all_operation_names()
    ]
    order = list(scheduler.minimize_peak_memory(interface, "LIST"))

    def peaks(schedule: list[int]) -> list[int]:
        contents = interface.compute_memory_contents_under_schedule(schedule)
        return [max(sum(by[tensor] for tensor in held) for held in contents) for by in (sizes, on_device)]

    return {
        "model": name,
        "tensors": [[tensor, sizes[tensor], on_device[tensor]] for tensor in tensors],
        "final": [numbers[tensor] for tensor in tensors if interface.is_tensor_final(tensor)],
        "ops": ops,
        "list_order": order,
        "naive_peaks": peaks(list(range(len(ops)))),
        "list_peaks": peaks(order),
    }


def test_with_lowtide(scheduler: Any, interfaces: list[tuple[str, Any, Any, list[Any]]]) -> None:
    """Run Mesh-TensorFlow's test with lowtide's function, and lowtide on the real objects."""
    from mesh_tensorflow.auto_mtf import scheduler_test  # pyright: ignore[reportMissingImports]

    import lowtide.mesh_tensorflow as ours
    from tests.frameworks.mesh_tensorflow.interfaces import tensor_sizes

    for name, graph, interface, results in interfaces:
        model = ours.MeshTensorflowModel(interface)
        bare = ours.MeshTensorflowModel(graph, final=[result.name for result in results])
        assert tensor_sizes(bare) == tensor_sizes(model)
        split, bare_split = (
            ours.MeshTensorflowModel(source, partial_layout=LAYOUT, mesh_dimension_to_size=MESH, final=final)
            for source, final in ((interface, ()), (graph, [result.name for result in results]))
        )
        assert tensor_sizes(split) == tensor_sizes(bare_split)
        theirs = list(scheduler.minimize_peak_memory(interface, "LIST"))
        own = ours.minimize_peak_memory(interface, "LIST")
        best, result = ours.plan(interface)
        for schedule in (theirs, own, best):
            assert model.memory_contents(schedule) == interface.compute_memory_contents_under_schedule(schedule)
        peaks = [model.peak_bytes(order) for order in (range(len(own)), theirs, own, best)]
        assert peaks[1] >= peaks[2] >= peaks[3]
        print(f"{name}: {len(own)} ops; naive, LIST, ours, optimal: {peaks}; bound {result.lower_bound_bytes}")
    scheduler.minimize_peak_memory = ours.minimize_peak_memory
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(scheduler_test.SchedulerTest)
    if not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful():
        raise SystemExit(1)


def main(argument: str) -> None:
    """Write the records, or test lowtide; equal runs write equal files."""
    scheduler, graph_interface, transformer = import_mesh()
    found: list[tuple[str, Any, Any, list[Any]]] = []
    for name, graph, results in models(transformer):
        interface = graph_interface.GraphInterface(graph)
        for result in results:
            interface.set_tensor_final(result.name)
        found.append((name, graph, interface, results))
    if argument == "--test":
        test_with_lowtide(scheduler, found)
        return
    lines = ",\n".join(
        json.dumps(record(name, interface, scheduler), separators=(",", ":")) for name, _, interface, _ in found
    )
    Path(argument).write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
