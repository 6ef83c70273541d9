"""Nets of known kinds as NetDefs, with their backward passes, for tests and benchmarks."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from lowtide.caffe2 import Argument, NetDef, OperatorDef

Shapes = dict[str, list[Any]]


class NetBuilder:
    """Collects ops in their order, and writes their gradients as Caffe2 does."""

    def __init__(self, name: str) -> None:
        self.net = NetDef(name=name)
        self.shapes: Shapes = {}
        self.parameters: list[str] = []
        self._shape_of: dict[str, tuple[int, ...]] = {}

    def input(self, name: str, *shape: int, dtype: str = "float32") -> str:
        """Declare a blob from outside."""
        self.net.external_input.append(name)
        self.shapes[name] = [dtype, list(shape)]
        return name

    def parameter(self, name: str, *shape: int) -> str:
        """Declare a weight."""
        self.parameters.append(self.input(name, *shape))
        return name

    def op(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **settings: Any) -> str:
        """Add an op and return its first output."""
        made = OperatorDef(type=kind, input=inputs, output=outputs, arg=[_argument(*item) for item in settings.items()])
        self.net.op.append(made)
        return outputs[0]

    def fc(self, x: str, name: str, n_in: int, n_out: int) -> str:
        """Add a fully connected layer."""
        weights = [self.parameter(f"{name}_w", n_out, n_in), self.parameter(f"{name}_b", n_out)]
        return self.op("FC", [x, *weights], [name])

    def conv(self, x: str, name: str, n_in: int, n_out: int, kernel: int = 3, stride: int = 1) -> str:
        """Add a convolution that keeps the size, divided by the stride, with a rectifier in place behind it."""
        weights = [self.parameter(f"{name}_w", n_out, n_in, kernel, kernel), self.parameter(f"{name}_b", n_out)]
        self.op("Conv", [x, *weights], [name], kernel=kernel, stride=stride, pad=kernel // 2)
        return self.op("Relu", [name], [name])

    def loss(self, x: str, batch: int, suffix: str = "") -> str:
        """Add a classifier over some rows and the mean of its losses."""
        label = f"label{suffix}"
        if label not in self.net.external_input:
            self.input(label, batch, dtype="int32")
        pred = self.op("Softmax", [x], [f"pred{suffix}"])
        xent = self.op("LabelCrossEntropy", [pred, label], [f"xent{suffix}"])
        loss = self.op("AveragedLoss", [xent], [f"loss{suffix}"])
        self.net.external_output.append(loss)
        return loss

    def gradients(self, losses: Sequence[str]) -> list[str]:
        """Add the backward pass from some losses and return the gradients of the parameters, which become outputs."""
        backward = _Backward(self, losses)
        for op in reversed(list(self.net.op)):
            backward.through(op)
        grads = [backward.total(parameter) for parameter in self.parameters]
        self.net.external_output.extend(grad for grad in grads if grad)
        return [grad for grad in grads if grad]


def _argument(name: str, value: Any) -> Argument:
    if isinstance(value, float):
        return Argument(name=name, f=value)
    if isinstance(value, str):
        return Argument(name=name, s=value.encode())
    return Argument(name=name, ints=value) if isinstance(value, list) else Argument(name=name, i=value)


class _Backward:
    def __init__(self, builder: NetBuilder, losses: Sequence[str]) -> None:
        self._builder = builder
        self._parts: defaultdict[str, list[str]] = defaultdict(list)
        for loss in losses:
            self._parts[loss].append(
                self._op("ConstantFill", [loss], [f"{loss}_autogen_grad"], value=1.0, is_gradient=False)
            )

    def through(self, op: OperatorDef) -> None:
        """Write the gradient op of an op, where a loss depends on what it gives."""
        grads = [self.total(blob) for blob in op.output]
        if not any(grads):
            return
        for blob in op.output:
            self._parts.pop(blob, None)
        _GRADIENTS[op.type](self, op, [grad or "" for grad in grads])

    def total(self, blob: str) -> str | None:
        """Return the sum of all gradients of a blob, written down where there are several."""
        parts = self._parts.get(blob, [])
        if len(parts) < 2:
            return parts[0] if parts else None
        total = self._op("Sum", parts, [f"{blob}_grad"])
        self._parts[blob] = [total]
        return total

    def grad(self, blob: str) -> str:
        """Return a name for one more gradient of a blob."""
        n_parts = len(self._parts[blob])
        readers = sum(blob in op.input for op in self._builder.net.op if not op.is_gradient_op)
        name = f"{blob}_grad" if readers < 2 else f"_{blob}_grad_autosplit_{n_parts}"
        self._parts[blob].append(name)
        return name

    def share(self, blob: str, grad: str) -> None:
        """Let a gradient pass through unchanged."""
        self._parts[blob].append(grad)

    def _op(
        self, kind: str, inputs: Sequence[str], outputs: Sequence[str], is_gradient: bool = True, **how: Any
    ) -> str:
        made = self._builder.op(kind, inputs, outputs, **how)
        self._builder.net.op[-1].is_gradient_op = is_gradient
        return made

    def like(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], op: OperatorDef) -> None:
        """Add a gradient op with the settings of the forward op."""
        self._op(kind, inputs, outputs)
        self._builder.net.op[-1].arg.extend(op.arg)


def _layer(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> None:
    x, w, b = op.input
    names = [backward.grad(w), backward.grad(b)]
    names += [backward.grad(x)] if x not in backward._builder.net.external_input else []
    backward.like(f"{op.type}Gradient", [x, w, grads[0]], names, op)


def _from_output(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> None:
    backward.like(f"{op.type}Gradient", [op.output[0], grads[0]], [_in_place_or_new(backward, op, grads)], op)


def _in_place_or_new(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> str:
    if op.input[0] != op.output[0]:
        return backward.grad(op.input[0])
    backward.share(op.input[0], grads[0])
    return grads[0]


def _from_both(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> None:
    inputs = [*op.input, *([op.output[0]] if "Pool" in op.type else []), grads[0]]
    backward.like(f"{op.type}Gradient", inputs, [backward.grad(op.input[0])], op)


def _sum(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> None:
    for blob in op.input:
        backward.share(blob, grads[0])


def _concat(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> None:
    outputs = [backward.grad(blob) for blob in op.input]
    backward._op("Split", [grads[0]], outputs, axis=1)


def _split(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> None:
    grad = backward.grad(op.input[0])
    backward._op("Concat", list(grads), [grad, f"{grad}_lengths"], axis=1)


def _mul(backward: _Backward, op: OperatorDef, grads: Sequence[str]) -> None:
    backward.like("MulGradient", [grads[0], *op.input], [backward.grad(blob) for blob in op.input], op)


_GRADIENTS: dict[str, Callable[[_Backward, OperatorDef, Sequence[str]], None]] = {
    **dict.fromkeys(("FC", "Conv"), _layer),
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softmax"), _from_output),
    **dict.fromkeys(("MaxPool", "AveragePool", "LabelCrossEntropy", "AveragedLoss"), _from_both),
    "Sum": _sum,
    "Concat": _concat,
    "Split": _split,
    "Mul": _mul,
}


def conv_chain(depth: int, batch: int = 4, size: int = 16, *, training: bool) -> NetBuilder:
    """Return convolutions one behind the other, halving the image now and then."""
    net = NetBuilder(f"conv chain of {depth}{', training' if training else ''}")
    x, channels = net.input("data", batch, 3, size, size), 3
    for layer in range(depth):
        wide = 8 * 2 ** (3 * layer // depth)
        x = net.conv(x, f"conv{layer}", channels, wide, stride=2 if layer and wide != channels else 1)
        channels = wide
    return _classified(net, x, channels, batch, training)


def residual(blocks: int, batch: int = 4, size: int = 16, *, training: bool) -> NetBuilder:
    """Return residual blocks of two convolutions each."""
    net = NetBuilder(f"residual net of {blocks} blocks{', training' if training else ''}")
    x = net.conv(net.input("data", batch, 3, size, size), "stem", 3, 16)
    for block in range(blocks):
        inner = net.conv(x, f"b{block}c0", 16, 16)
        outer = net.conv(inner, f"b{block}c1", 16, 16)
        x = net.op("Sum", [outer, x], [f"b{block}"])
    return _classified(net, x, 16, batch, training)


def inception(blocks: int, batch: int = 4, size: int = 16, *, training: bool) -> NetBuilder:
    """Return inception blocks: four branches of different widths, joined by channels."""
    net = NetBuilder(f"inception of {blocks} blocks{', training' if training else ''}")
    x, channels = net.conv(net.input("data", batch, 3, size, size), "stem", 3, 16), 16
    for block in range(blocks):
        name = f"i{block}"
        pooled = net.op("MaxPool", [x], [f"{name}p"], kernel=3, stride=1, pad=1)
        branches = [
            net.conv(x, f"{name}a", channels, 8, 1),
            net.conv(net.conv(x, f"{name}b0", channels, 24, 1), f"{name}b1", 24, 8),
            net.conv(net.conv(x, f"{name}c0", channels, 16, 1), f"{name}c1", 16, 8, 5),
            net.conv(pooled, f"{name}d", channels, 8, 1),
        ]
        x, channels = net.op("Concat", branches, [name, f"{name}_lengths"], axis=1), 32
    return _classified(net, x, channels, batch, training)


def _classified(net: NetBuilder, x: str, channels: int, batch: int, training: bool) -> NetBuilder:
    pooled = net.op("AveragePool", [x], ["pooled"], global_pooling=1)
    scores = net.fc(pooled, "scores", channels, 10)
    if training:
        net.gradients([net.loss(scores, batch)])
    else:
        net.net.external_output.append(net.op("Softmax", [scores], ["pred"]))
    return net


def unrolled_lstm(steps: int, width: int = 32, batch: int = 8, *, training: bool) -> NetBuilder:
    """Return an LSTM whose steps stand one behind the other."""
    net = NetBuilder(f"LSTM of {steps} steps{', training' if training else ''}")
    hidden, cell = net.input("hidden", batch, width), net.input("cell", batch, width)
    weights = [net.parameter("gates_w", 4 * width, 2 * width), net.parameter("gates_b", 4 * width)]
    for step in range(steps):
        x = net.input(f"x{step}", batch, width)
        both = net.op("Concat", [x, hidden], [f"both{step}", f"both{step}_lengths"], axis=1)
        gates = net.op("FC", [both, *weights], [f"gates{step}"])
        i, f, o, g = (f"{gate}{step}" for gate in "ifog")
        net.op("Split", [gates], [i, f, o, g], axis=1)
        for gate, kind in ((i, "Sigmoid"), (f, "Sigmoid"), (o, "Sigmoid"), (g, "Tanh")):
            net.op(kind, [gate], [gate])
        kept, added = net.op("Mul", [f, cell], [f"kept{step}"]), net.op("Mul", [i, g], [f"added{step}"])
        cell = net.op("Sum", [kept, added], [f"cell{step}"])
        hidden = net.op("Mul", [o, net.op("Tanh", [cell], [f"shown{step}"])], [f"hidden{step}"])
    if training:
        net.gradients([net.loss(net.fc(hidden, "scores", width, 10), batch)])
    else:
        net.net.external_output.append(hidden)
    return net


def two_losses(depth: int, width: int = 64, batch: int = 32) -> NetBuilder:
    """Return fully connected layers that part into two losses, as in memonger's own tests."""
    net = NetBuilder(f"two losses over {depth} layers, training")
    x = net.input("data", batch, width)
    for layer in range(depth):
        x = net.op("Relu", [net.fc(x, f"fc{layer}", width, width)], [f"fc{layer}"])
    ends: list[str] = []
    for branch in "ab":
        y = x
        for layer in range(2):
            y = net.op("Relu", [net.fc(y, f"fc{branch}{layer}", width, width)], [f"fc{branch}{layer}"])
        ends.append(net.loss(net.fc(y, f"scores{branch}", width, 10), batch, branch))
    net.gradients(ends)
    return net


def wide_dag(branches: int, batch: int = 16, width: int = 32) -> NetBuilder:
    """Return many branches of different lengths and widths over one input, all read at the end."""
    net = NetBuilder(f"wide dag of {branches} branches")
    net.net.type, net.net.num_workers = "dag", 4
    data = net.input("data", batch, width)
    ends: list[str] = []
    for branch in range(branches):
        x, n_in = data, width
        for layer in range(1 + branch % 3):
            n_out = width * (4 if (branch + layer) % 3 == 0 else 1)
            x = net.op("Relu", [net.fc(x, f"b{branch}l{layer}", n_in, n_out)], [f"b{branch}l{layer}"])
            n_in = n_out
        ends.append(net.fc(x, f"b{branch}", n_in, 8))
    net.net.external_output.append(net.op("Concat", ends, ["joined", "joined_lengths"], axis=1))
    return net


def all_nets() -> list[NetBuilder]:
    """Return ten nets of different kinds."""
    return [
        conv_chain(12, training=False),
        conv_chain(12, training=True),
        residual(6, training=False),
        residual(6, training=True),
        inception(4, training=False),
        inception(4, training=True),
        unrolled_lstm(8, training=False),
        unrolled_lstm(8, training=True),
        two_losses(6),
        wide_dag(24),
    ]
