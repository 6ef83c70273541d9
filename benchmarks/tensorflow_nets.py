"""Networks with their gradients as TensorFlow graphs on one GPU that is not there, for the memory of training steps."""

from collections.abc import Callable
from typing import Any

Layer = Callable[[Any, Any, int], Any]


def _variable(tf: Any, name: str, shape: tuple[int, ...], resource: bool) -> Any:
    return tf.compat.v1.get_variable(name, shape, use_resource=resource)


def _batch_norm(tf: Any, x: Any, number: int, resource: bool) -> Any:
    channels = x.shape[-1]
    scale, offset = (_variable(tf, f"{name}{number}", (channels,), resource) for name in ("scale", "offset"))
    return tf.compat.v1.nn.fused_batch_norm(x, scale, offset)[0]


def _convolution(tf: Any, x: Any, name: str, resource: bool, channels: int = 16, size: int = 3) -> Any:
    weight = _variable(tf, name, (size, size, x.shape[-1], channels), resource)
    return tf.nn.conv2d(x, weight, 1, "SAME")


def _image(tf: Any, size: int = 32) -> Any:
    return tf.compat.v1.placeholder(tf.float32, (8, size, size, 16), name="image")


def conv_bn_relu(tf: Any, layers: int, resource: bool) -> Any:
    """Convolution, batch norm, ReLU, so many times."""
    x = _image(tf)
    for k in range(layers):
        x = tf.nn.relu(_batch_norm(tf, _convolution(tf, x, f"w{k}", resource), k, resource))
    return tf.reduce_mean(x)


def pooling(tf: Any, layers: int, resource: bool) -> Any:
    """Convolution, bias, ReLU, with pooling after every fourth."""
    x = _image(tf, 64)
    for k in range(layers):
        bias = _variable(tf, f"b{k}", (16,), resource)
        x = tf.nn.relu(tf.nn.bias_add(_convolution(tf, x, f"w{k}", resource), bias))
        if k % 4 == 3:
            x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    return tf.reduce_mean(x)


def residual(tf: Any, layers: int, resource: bool) -> Any:
    """Residual blocks of two convolutions with batch norm."""
    x = _image(tf)
    for k in range(layers // 2):
        y = tf.nn.relu(_batch_norm(tf, _convolution(tf, x, f"w{k}", resource), 2 * k, resource))
        y = _batch_norm(tf, _convolution(tf, y, f"v{k}", resource), 2 * k + 1, resource)
        x = tf.nn.relu(x + y)
    return tf.reduce_mean(x)


def inception(tf: Any, layers: int, resource: bool) -> Any:
    """Three convolutions side by side, concatenated."""
    x = _image(tf)
    for k in range(layers // 3):
        sides = [
            tf.nn.relu(_convolution(tf, x, f"w{k}_{size}", resource, 8 if size != 5 else 4, size)) for size in (1, 3, 5)
        ]
        x = tf.concat(sides, 3)
    return tf.reduce_mean(x)


def perceptron(tf: Any, layers: int, resource: bool) -> Any:
    """Dense layers with biases and four activations by turns."""
    x = tf.compat.v1.placeholder(tf.float32, (256, 128), name="features")
    activations = (tf.nn.relu, tf.sigmoid, tf.tanh, tf.nn.softplus)
    for k in range(layers):
        weight, bias = _variable(tf, f"w{k}", (128, 128), resource), _variable(tf, f"b{k}", (128,), resource)
        x = activations[k % 4](tf.nn.bias_add(tf.matmul(x, weight), bias)) * 0.5
    return tf.reduce_mean(tf.square(x))


def recurrent(tf: Any, layers: int, resource: bool) -> Any:
    """A long short-term memory, unrolled."""
    x = tf.compat.v1.placeholder(tf.float32, (layers, 64, 64), name="steps")
    weight = _variable(tf, "weight", (128, 256), resource)
    state = memory = tf.zeros((64, 64))
    for step in range(layers):
        gates = tf.matmul(tf.concat([x[step], state], 1), weight)
        take, keep, give, value = tf.split(gates, 4, 1)
        memory = tf.sigmoid(keep) * memory + tf.sigmoid(take) * tf.tanh(value)
        state = tf.sigmoid(give) * tf.tanh(memory)
    return tf.reduce_mean(state)


def transformer(tf: Any, layers: int, resource: bool) -> Any:
    """Attention and two dense layers with layer norms, so many times."""
    width, tokens = 64, 64
    x = tf.compat.v1.placeholder(tf.float32, (4, tokens, width), name="tokens")

    def dense(value: Any, name: str, size: int) -> Any:
        flat = tf.reshape(value, (-1, value.shape[-1]))
        made = tf.matmul(flat, _variable(tf, name, (value.shape[-1], size), resource))
        return tf.reshape(made, (4, tokens, size))

    def normalized(value: Any) -> Any:
        mean = tf.reduce_mean(value, 2, keepdims=True)
        centered = value - mean
        return centered * tf.math.rsqrt(tf.reduce_mean(tf.square(centered), 2, keepdims=True) + 1e-5)

    for k in range(layers):
        query, key, value = (dense(normalized(x), f"{name}{k}", width) for name in "qkv")
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * 0.125)
        x = x + dense(tf.matmul(weights, value), f"o{k}", width)
        x = x + dense(tf.nn.relu(dense(normalized(x), f"up{k}", 4 * width)), f"down{k}", width)
    return tf.reduce_mean(x)


NETS: dict[str, tuple[Callable[[Any, int, bool], Any], int, bool]] = {
    "conv-BN-ReLU, 10 layers": (conv_bn_relu, 10, False),
    "conv-BN-ReLU, 20 layers, resources": (conv_bn_relu, 20, True),
    "conv-BN-ReLU, 40 layers": (conv_bn_relu, 40, False),
    "conv-bias-ReLU-pool, 12 layers": (pooling, 12, False),
    "conv-bias-ReLU-pool, 16 layers, resources": (pooling, 16, True),
    "residual, 12 layers": (residual, 12, False),
    "residual, 24 layers, resources": (residual, 24, True),
    "inception, 12 layers": (inception, 12, False),
    "inception, 24 layers, resources": (inception, 24, True),
    "MLP, 10 layers": (perceptron, 10, False),
    "MLP, 32 layers, resources": (perceptron, 32, True),
    "LSTM, 10 steps": (recurrent, 10, False),
    "LSTM, 20 steps, resources": (recurrent, 20, True),
    "transformer, 10 layers": (transformer, 10, True),
}
"""By name: the network, how many layers, and whether its variables are resources."""


def training_graph(name: str) -> Any:
    """Return a network with the gradients of its variables as a tf.Graph."""
    import tensorflow as tf

    make, layers, resource = NETS[name]
    graph = tf.Graph()
    with graph.as_default(), tf.device("/device:GPU:0"):
        loss = make(tf, layers, resource)
        tf.gradients(loss, tf.compat.v1.trainable_variables())
    return graph
