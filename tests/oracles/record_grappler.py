r"""Record what TensorFlow's own memory optimizer (Grappler) does with random graphs and with small networks.

    python3.11 -m venv tensorflow
    tensorflow/bin/pip install tensorflow-cpu==2.21.0
    PYTHONPATH=. tensorflow/bin/python tests/oracles/record_grappler.py tests/data/grappler.json.gz

It runs on a virtual cluster of one CPU and one GPU; every node is placed on the GPU, or, as its kernels for sums are
not in the package, on the CPU for scheduling. No other optimizer is on. A record holds the level and its settings, the
nodes in the order in which the virtual cluster runs them (name, kind, inputs, bytes of the outputs, run time in
nanoseconds, hints), the peak that Grappler estimates with what is live then (tensor, bytes, from, to), and the nodes
afterwards. Swapping ends after one round, since the package does not know the ops that it inserts.
"""

import gzip
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", TF_ENABLE_ONEDNN_OPTS="0")
DEVICE = "/job:localhost/replica:0/task:0/device:{}:0"
HUGE = 2**44
LEVELS = {"manual": "MANUAL", "recomputation": "RECOMPUTATION_HEURISTICS", "swapping": "SWAPPING_HEURISTICS"}
LEVELS |= {"scheduling": "SCHEDULING_HEURISTICS"}


def main(path: str) -> None:
    """Write all records."""
    records = [record_random(seed, level) for level in ("recomputation", "manual") for seed in range(60)]
    records += [record_random(seed, "swapping") for seed in range(100, 180)]
    records += [record_random(seed, "scheduling") for seed in range(200, 240)]
    records += [record_network(name, scope) for name in NETWORKS for scope in ("gradients/", "nowhere/")]
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    Path(path).write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


def record_random(seed: int, level: str) -> dict[str, Any]:
    """Record a level on a random graph; sizes and times only matter where memory is measured."""
    import tensorflow as tf

    rng = random.Random(seed)
    graph = tf.Graph()
    kind = "CPU" if level == "scheduling" else "GPU"
    with graph.as_default(), tf.device(f"/device:{kind}:0"):
        add_random_nodes(tf, rng, sums=level == "scheduling")
    if level == "manual":
        hint(graph, rng, rng.choice(("recompute", "swap")))
    fraction = {"swapping": rng.choice((0.5, 0.7, 0.9)), "scheduling": rng.choice((0.7, 1.1, 1.5))}.get(level)
    return record(f"random {seed}", graph, level, "gradients/", fraction, kind)


def add_random_nodes(tf: Any, rng: random.Random, *, sums: bool) -> None:
    """Add nodes with random inputs, some of them in scopes of gradients."""
    rows = rng.choice((64, 128, 256))
    if sums:  # scheduling takes the shapes of what is fed for unknown
        sources = [tf.raw_ops.RandomUniform(shape=(rows, 1024), dtype=tf.float32, name=f"x{k}") for k in range(2)]
    else:
        sources = [tf.compat.v1.placeholder(tf.float32, (rows, 1024), name=f"x{k}") for k in range(2)]
    values: list[Any] = list(sources)
    unary = [tf.nn.relu, tf.sqrt, tf.square, tf.exp, tf.identity, tf.tanh, tf.negative]
    n_nodes = rng.randint(8, 30)
    numbers = list(range(n_nodes))
    rng.shuffle(numbers)
    for place, number in enumerate(numbers):
        late = place > n_nodes // 2 and rng.random() < 0.7
        name = f"{rng.choice(('gradients/', 'tower/gradients/')) if late else ''}n{number}"
        recent = values[-8:]
        choice = rng.random()
        if sums and choice < 0.3:
            operands = [value for value in recent if value.shape == recent[-1].shape]
            tf.add_n(rng.sample(operands, min(len(operands), rng.randint(2, 5))), name=name)
            values.append(tf.compat.v1.get_default_graph().get_tensor_by_name(f"{name}:0"))
        elif choice < 0.5:
            values.append(rng.choice(unary)(rng.choice(recent), name=name))
        elif choice < 0.9:
            one = rng.choice(recent)
            two = rng.choice([value for value in recent if value.shape == one.shape])
            values.append(rng.choice((tf.raw_ops.Add, tf.raw_ops.Mul, tf.raw_ops.Maximum))(x=one, y=two, name=name))
        else:
            values.append(tf.nn.softmax(rng.choice(recent), name=name))
            tf.matmul(rng.choice(recent), rng.choice(recent), transpose_b=True)


def hint(graph: Any, rng: random.Random, kind: str) -> None:
    """Give random nodes a hint: "recompute" or "swap"."""
    from tensorflow.core.framework import attr_value_pb2

    for operation in graph.get_operations():
        if kind == "recompute" and rng.random() < 0.4:
            operation._set_attr("_recompute_hint", attr_value_pb2.AttrValue(i=0))
        if kind == "swap" and operation.inputs and rng.random() < 0.3:
            place = rng.randrange(len(operation.inputs))
            operation._set_attr("_swap_to_host", attr_value_pb2.AttrValue(i=place))


def _batch_norm(tf: Any, x: Any, number: int) -> Any:
    channels = x.shape[-1]
    scale = tf.compat.v1.get_variable(f"scale{number}", (channels,), use_resource=False)
    offset = tf.compat.v1.get_variable(f"offset{number}", (channels,), use_resource=False)
    return tf.compat.v1.nn.fused_batch_norm(x, scale, offset)[0]


def _convolution(tf: Any, x: Any, number: int) -> Any:
    weight = tf.compat.v1.get_variable(f"weight{number}", (3, 3, x.shape[-1], 8), use_resource=False)
    return tf.nn.conv2d(x, weight, 1, "SAME")


def _plain(tf: Any, layers: int = 4) -> Any:
    x = tf.compat.v1.placeholder(tf.float32, (4, 16, 16, 8), name="image")
    for number in range(layers):
        x = tf.nn.relu(_batch_norm(tf, _convolution(tf, x, number), number))
    return tf.reduce_mean(x)


def _deep(tf: Any) -> Any:
    return _plain(tf, 10)


def _pooling(tf: Any) -> Any:
    x = tf.compat.v1.placeholder(tf.float32, (4, 32, 32, 8), name="image")
    for number in range(4):
        bias = tf.compat.v1.get_variable(f"bias{number}", (8,), use_resource=False)
        x = tf.nn.relu(tf.nn.bias_add(_convolution(tf, x, number), bias))
        if number % 2:
            x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    return tf.reduce_mean(x)


def _residual(tf: Any) -> Any:
    x = tf.compat.v1.placeholder(tf.float32, (4, 16, 16, 8), name="image")
    for number in range(6):
        x = tf.nn.relu(x + _batch_norm(tf, _convolution(tf, x, number), number))
    return tf.reduce_mean(x)


def _perceptron(tf: Any) -> Any:
    x = tf.compat.v1.placeholder(tf.float32, (32, 64), name="features")
    for number, activation in enumerate((tf.nn.relu, tf.sigmoid, tf.tanh, tf.nn.softplus)):
        weight = tf.compat.v1.get_variable(f"dense{number}", (64, 64), use_resource=False)
        bias = tf.compat.v1.get_variable(f"bias{number}", (64,), use_resource=False)
        x = activation(tf.nn.bias_add(tf.matmul(x, weight), bias)) * 0.5
    return tf.reduce_mean(tf.square(x))


NETWORKS = {"plain": _plain, "deep": _deep, "pooling": _pooling, "residual": _residual, "perceptron": _perceptron}


def network(name: str) -> Any:
    """Return a network with its gradients as a TensorFlow graph."""
    import tensorflow as tf

    graph = tf.Graph()
    with graph.as_default(), tf.device("/device:GPU:0"):
        loss = NETWORKS[name](tf)
        tf.gradients(loss, tf.compat.v1.trainable_variables())
    return graph


def record_network(name: str, scope: str) -> dict[str, Any]:
    """Record the recomputation of a network with its gradients."""
    return record(name, network(name), "recomputation", scope)


def record(
    name: str, graph: Any, level: str, scope: str, fraction: float | None = None, kind: str = "GPU"
) -> dict[str, Any]:
    """Optimize a graph at a level; the device's memory is a fraction of Grappler's own estimate of the peak."""
    from tensorflow.python.grappler import item as items

    meta = meta_of(graph)
    item = items.Item(meta)
    cluster = cluster_of(HUGE, kind)
    costs = {cost.node: cost for cost in cluster.MeasureCosts(item)[0]}
    peak, live = cluster.DeterminePeakMemoryUsage(item)[DEVICE.format(kind)]
    nodes = [_node(node, graph, costs[node.name].compute_cost) for node in meta.graph_def.node]
    order, starts = _virtual_order(nodes)
    assert all(abs(starts[tensor] - start) < 1000 * len(nodes) for tensor, _, _, start, _ in live), name
    capacity = None if fraction is None else int(peak * fraction)
    return {
        "name": name,
        "level": level,
        "scope": scope,
        "capacity_bytes": capacity,
        "peak_bytes": peak,
        "live": [[f"{tensor}:{port}", size, start, end] for tensor, port, size, start, end in live],
        "nodes": [nodes[place] for place in order],
        "result": _rows(optimize(meta, level, scope, cluster_of(capacity or HUGE, kind))),
    }


def meta_of(graph: Any) -> Any:
    """Return a graph for Grappler, with everything that nothing reads as what is asked for."""
    from tensorflow.python.framework import meta_graph

    read = {tensor.op.name for operation in graph.get_operations() for tensor in operation.inputs}
    for operation in graph.get_operations():
        if operation.name not in read and operation.outputs:
            graph.add_to_collection("train_op", operation.outputs[0])
    return meta_graph.create_meta_graph_def(graph=graph)


def cluster_of(size: int, limited: str) -> Any:
    """Return a virtual cluster of which one kind of device has a limited memory."""
    from tensorflow.core.protobuf import device_properties_pb2
    from tensorflow.python.grappler import cluster

    devices: list[Any] = []
    for kind in ("CPU", "GPU"):
        memory = size if kind == limited else HUGE
        properties = device_properties_pb2.DeviceProperties(
            type=kind, frequency=1000, num_cores=4, bandwidth=16, memory_size=memory
        )
        if kind == "GPU":
            properties.environment["architecture"] = "7"
        devices.append(device_properties_pb2.NamedDevice(name=DEVICE.format(kind), properties=properties))
    return cluster.Cluster(devices=devices)


def estimate(meta: Any) -> int:
    """Return Grappler's own estimate of the peak on the GPU, in bytes."""
    from tensorflow.python.grappler import item as items

    return cluster_of(HUGE, "GPU").DeterminePeakMemoryUsage(items.Item(meta))[DEVICE.format("GPU")][0]


def _node(node: Any, graph: Any, cost: int) -> dict[str, Any]:
    outputs = graph.get_operation_by_name(node.name).outputs
    sizes = [(output.shape.num_elements() or 0) * output.dtype.size for output in outputs]
    row: dict[str, Any] = {"name": node.name, "kind": node.op, "inputs": list(node.input), "bytes": sizes}
    row["ns"] = max(1, cost)  # no node takes less there
    if "_recompute_hint" in node.attr:
        row["recompute"] = True
    if "_swap_to_host" in node.attr:
        row["swap"] = [node.attr["_swap_to_host"].i]
    return row


def _virtual_order(nodes: list[dict[str, Any]]) -> tuple[list[int], dict[str, int]]:
    """Return the order in which the virtual cluster runs nodes on one device, first ready first, names breaking ties;
    and when each starts, in nanoseconds."""
    place = {node["name"]: number for number, node in enumerate(nodes)}
    inputs = [{place[name.lstrip("^").split(":")[0]] for name in node["inputs"]} for node in nodes]
    ends: dict[int, int] = {}
    order: list[int] = []
    starts: dict[str, int] = {}
    now = 0
    while len(order) < len(nodes):
        ready = [number for number in range(len(nodes)) if number not in ends and inputs[number] <= ends.keys()]
        when = {number: max((ends[other] for other in inputs[number]), default=0) for number in ready}
        chosen = min(ready, key=lambda number: (when[number], nodes[number]["name"]))
        starts[nodes[chosen]["name"]] = max(now, when[chosen])
        now = ends[chosen] = starts[nodes[chosen]["name"]] + nodes[chosen]["ns"]
        order.append(chosen)
    return order, starts


def optimize(meta: Any, level: str, scope: str, cluster: Any) -> Any:
    """Return the graph after optimization at a level."""
    from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
    from tensorflow.python.grappler import tf_optimizer

    options = rewriter_config_pb2.RewriterConfig
    rewrite = options(
        memory_optimization=options.MemOptType.Value(LEVELS[level]),
        memory_optimizer_target_node_name_scope=scope,
        min_graph_nodes=-1,
        meta_optimizer_iterations=options.ONE,
        disable_model_pruning=True,
    )
    for field in rewrite.DESCRIPTOR.fields:
        if field.enum_type is not None and field.enum_type.name == "Toggle":
            setattr(rewrite, field.name, options.OFF)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.CopyFrom(rewrite)
    return tf_optimizer.OptimizeGraph(config, meta, cluster=cluster)


def _rows(optimized: Any) -> list[list[Any]]:
    return [[node.name, node.op, list(node.input)] for node in sorted(optimized.node, key=lambda node: node.name)]


if __name__ == "__main__":
    main(*sys.argv[1:])
