"""Thirteen ONNX models with random weights, written once to a folder: convolution nets, transformers, loops, detection."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.whisper.modeling_whisper import WhisperEncoder

OPSET = 17


def conv(fan_in: int, fan_out: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution with a norm and a ReLU."""
    layer = nn.Conv2d(fan_in, fan_out, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(fan_out), nn.ReLU())


class UNet(nn.Module):
    """Four levels with skip connections."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(4)]
        inputs = [3, *widths]
        self.down = nn.ModuleList(
            nn.Sequential(conv(i, o), conv(o, o)) for i, o in zip(inputs, widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.Sequential(conv(low + high, high), conv(high, high))
            for low, high in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for block in self.down[:-1]:
            x = block(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for block in self.up:
            x = block(torch.cat([functional.interpolate(x, scale_factor=2.0), skips.pop()], 1))
        return self.head(x)


class Cell(nn.Module):
    """A cell of NASNet's kind: five pairs of branches over the last two results, concatenated."""

    def __init__(self, before: int, last: int, width: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.before, self.last = conv(before, width, 1), conv(last, width, 1)
        self.branches = nn.ModuleList(
            nn.Sequential(conv(width, width, size, groups=width), conv(width, width, 1)) for size in sizes
        )

    def forward(self, before: Tensor, last: Tensor) -> Tensor:
        states = [self.before(before), self.last(last)]
        for number in range(0, len(self.branches), 2):
            one, other = self.branches[number], self.branches[number + 1]
            states.append(one(states[number // 2 % 2]) + other(states[number % len(states)]))
        return torch.cat(states[2:], 1)


class CellNet(nn.Module):
    """A stack of such cells."""

    def __init__(self, sizes: tuple[int, ...], n_cells: int, width: int = 24) -> None:
        super().__init__()
        self.stem = conv(3, width, 3, 2)
        widths = [width, width]
        self.cells = nn.ModuleList()
        for _ in range(n_cells):
            self.cells.append(Cell(widths[-2], widths[-1], width, sizes))
            widths.append(width * (len(sizes) // 2))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        before = last = self.stem(x)
        for cell in self.cells:
            before, last = last, cell(before, last)
        return self.head(last.mean((2, 3)))


class HRNet(nn.Module):
    """Three resolutions side by side that exchange their results."""

    def __init__(self, width: int = 16, n_stages: int = 4) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width]
        self.stem = nn.ModuleList([conv(3, width, 3, 2), conv(width, 2 * width, 3, 2), conv(2 * width, 4 * width, 3, 2)])
        self.blocks = nn.ModuleList(
            nn.ModuleList(nn.Sequential(conv(w, w), conv(w, w)) for w in widths) for _ in range(n_stages)
        )
        self.mix = nn.ModuleList(
            nn.ModuleList(nn.ModuleList(nn.Conv2d(i, o, 1) for i in widths) for o in widths) for _ in range(n_stages)
        )
        self.head = nn.Conv2d(sum(widths), 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        states: list[Tensor] = []
        for layer in self.stem:
            x = layer(x)
            states.append(x)
        for blocks, mix in zip(self.blocks, self.mix, strict=True):
            states = [block(state) for block, state in zip(blocks, states, strict=True)]
            mixed: list[Tensor] = []
            for target, row in enumerate(mix):
                size = states[target].shape[2:]
                parts = [functional.interpolate(m(s), size=size) for m, s in zip(row, states, strict=True)]
                mixed.append(functional.relu(torch.stack(parts).sum(0) if len(parts) < 2 else sum(parts[1:], parts[0])))
            states = mixed
        size = states[0].shape[2:]
        return self.head(torch.cat([functional.interpolate(state, size=size) for state in states], 1))


class Inverted(nn.Module):
    """An inverted residual with squeeze and excitation, as in MobileNetV3."""

    def __init__(self, fan_in: int, hidden: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.expand, self.depth = conv(fan_in, hidden, 1), conv(hidden, hidden, 5, stride, hidden)
        self.squeeze, self.excite = nn.Conv2d(hidden, hidden // 4, 1), nn.Conv2d(hidden // 4, hidden, 1)
        self.project = nn.Sequential(nn.Conv2d(hidden, fan_out, 1, bias=False), nn.BatchNorm2d(fan_out))
        self.residual = stride == 1 and fan_in == fan_out

    def forward(self, x: Tensor) -> Tensor:
        y = functional.hardswish(self.depth(functional.hardswish(self.expand(x))))
        scale = functional.hardsigmoid(self.excite(functional.relu(self.squeeze(y.mean((2, 3), keepdim=True)))))
        y = self.project(y * scale)
        return x + y if self.residual else y


def mobile_net() -> nn.Module:
    """Return a net of inverted residuals."""
    rows = [(16, 64, 24, 2), (24, 72, 24, 1), (24, 96, 40, 2), (40, 240, 40, 1), (40, 240, 80, 2), (80, 240, 80, 1)]
    blocks = [Inverted(*row) for row in rows]
    return nn.Sequential(conv(3, 16, 3, 2), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(80, 100))


class First(nn.Module):
    """A transformer's first result, without caches of its own."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x, return_dict=False)[0]


class CachedAttentionStack(nn.Module):
    """Blocks of GPT-2's kind for one new token, with keys and values of the earlier ones as inputs and outputs."""

    def __init__(self, n_layers: int = 6, width: int = 384, n_heads: int = 6) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * n_layers))
        self.qkv = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(n_layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(n_layers))
        self.up = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(n_layers))
        self.down = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(n_layers))
        self.head = nn.Linear(width, 5000, bias=False)

    def forward(self, x: Tensor, *cache: Tensor) -> tuple[Tensor, ...]:
        batch, length, width = x.shape
        news: list[Tensor] = []
        for layer, qkv in enumerate(self.qkv):
            heads = qkv(self.norms[2 * layer](x)).view(batch, length, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
            key, value = torch.cat([cache[2 * layer], heads[1]], 2), torch.cat([cache[2 * layer + 1], heads[2]], 2)
            weights = torch.softmax(heads[0] @ key.transpose(2, 3) * (width // self.n_heads) ** -0.5, -1)
            x = x + self.out[layer]((weights @ value).transpose(1, 2).reshape(batch, length, width))
            x = x + self.down[layer](functional.gelu(self.up[layer](self.norms[2 * layer + 1](x))))
            news += [key, value]
        return (self.head(x), *news)


def export(model: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> None:
    """Write a module for these inputs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), inputs, str(path), dynamo=False, opset_version=OPSET)


def save(graph: onnx.GraphProto, path: Path) -> None:
    """Write a graph made by hand."""
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8), path)


def weight(name: str, *shape: int) -> TensorProto:
    """Return random floats."""
    content = np.random.default_rng(sum(name.encode())).normal(0, 0.1, shape).astype(np.float32)
    return numpy_helper.from_array(content, name)


def half_unet(path: Path) -> None:
    """Write the U-Net in float16; most of its ops have no such kernel on the CPU."""
    export(UNet().half(), (torch.randn(1, 3, 256, 256, dtype=torch.float16),), path)


def looped_lstm(path: Path) -> None:
    """Write a Loop whose body is a step of an LSTM over a batch of 256, with a projection behind it."""
    width, steps = 512, 20
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["xs", "i"], ["x"]),
            helper.make_node("Gemm", ["x", "wx", "b"], ["gx"]),
            helper.make_node("MatMul", ["h", "wh"], ["gh"]),
            helper.make_node("Add", ["gx", "gh"], ["gates"]),
            helper.make_node("Split", ["gates"], ["ig", "fg", "og", "cg"], axis=1),
            *(helper.make_node("Sigmoid", [f"{g}g"], [f"{g}s"]) for g in "ifo"),
            helper.make_node("Tanh", ["cg"], ["cs"]),
            helper.make_node("Mul", ["fs", "c"], ["kept"]),
            helper.make_node("Mul", ["is", "cs"], ["added"]),
            helper.make_node("Add", ["kept", "added"], ["c2"]),
            helper.make_node("Tanh", ["c2"], ["ct"]),
            helper.make_node("Mul", ["os", "ct"], ["h2"]),
            helper.make_node("Identity", ["going"], ["goes_on"]),
        ],
        "step",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, width]) for name in "hc"),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, width]) for name in ("h2", "c2")),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["steps", "yes", "h0", "c0"], ["h_end", "c_end"], body=body),
        helper.make_node("MatMul", ["h_end", "wh"], ["y"]),
    ]
    weights = [weight("wx", width, 4 * width), weight("wh", width, 4 * width), weight("b", 4 * width)]
    weights.append(numpy_helper.from_array(np.array(steps), "steps"))
    weights.append(numpy_helper.from_array(np.array(True), "yes"))
    values = [
        helper.make_tensor_value_info("xs", TensorProto.FLOAT, [steps, 256, width]),
        *(helper.make_tensor_value_info(name, TensorProto.FLOAT, [256, width]) for name in ("h0", "c0")),
    ]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [256, 4 * width])
    save(helper.make_graph(nodes, "lstm", values, [y], weights), path)


def detector(path: Path) -> None:
    """Write convolutions with boxes and scores behind them, of which NonMaxSuppression keeps what it finds."""
    backbone = path.with_name("backbone.onnx")
    export(HRNet(16, 2), (torch.randn(1, 3, 256, 256),), backbone)
    model = onnx.load(backbone)
    features = model.graph.output[0].name
    integers = {"box_shape": [1, -1, 4], "score_shape": [1, 1, -1], "most": [50]}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(content, np.int64), name) for name, content in integers.items()
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([0.5], np.float32), "threshold"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([4, 1], np.int64), "parts"))
    model.graph.node.extend(
        [
            helper.make_node("Split", [features, "parts"], ["boxes4", "scores1"], axis=1),
            helper.make_node("Transpose", ["boxes4"], ["boxes_last"], perm=[0, 2, 3, 1]),
            helper.make_node("Reshape", ["boxes_last", "box_shape"], ["boxes"]),
            helper.make_node("Reshape", ["scores1", "score_shape"], ["scores"]),
            helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "threshold"], ["kept"]),
        ]
    )
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("kept", TensorProto.INT64, [None, 3]))
    onnx.save(model, path)
    backbone.unlink()


class RandomImages(CalibrationDataReader):
    """Two random images, to learn ranges from."""

    def __init__(self, name: str) -> None:
        generator = np.random.default_rng(0)
        shape = (1, 3, 224, 224)
        self._feeds = iter([{name: generator.standard_normal(shape).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def quantized_mobile_net(path: Path) -> None:
    """Write the mobile net with QuantizeLinear and DequantizeLinear around its ops."""
    plain = path.with_name("mobilenet.onnx")
    if not plain.exists():
        MODELS["mobilenet"](plain)
    name = onnx.load(plain).graph.input[0].name
    quantize_static(plain, path, RandomImages(name), quant_format=QuantFormat.QDQ)


def _torch(make: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[Path], None]:
    return lambda path: export(make(), tuple(torch.randn(shape) for shape in shapes), path)


def _bert() -> nn.Module:
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, vocab_size=5000
    )
    config._attn_implementation = "eager"
    return First(transformers.BertModel(config))


def _swin() -> nn.Module:
    config = transformers.SwinConfig(embed_dim=48, depths=[2, 2, 4], num_heads=[2, 4, 8])
    config._attn_implementation = "eager"
    return First(transformers.SwinModel(config))


def _whisper() -> nn.Module:
    config = transformers.WhisperConfig(
        d_model=256, encoder_layers=4, encoder_attention_heads=4, encoder_ffn_dim=1024
    )
    config._attn_implementation = "eager"
    return First(WhisperEncoder(config))


MODELS: dict[str, Callable[[Path], None]] = {
    "nasnet": _torch(lambda: CellNet((5, 3, 7, 3, 7, 5, 3, 3, 5, 3), 8), (1, 3, 192, 192)),
    "pnasnet": _torch(lambda: CellNet((5, 7, 3, 5, 7, 3, 3, 5, 7, 3), 14), (1, 3, 160, 160)),
    "unet": _torch(UNet, (1, 3, 256, 256)),
    "unet_half": half_unet,
    "gpt2_cache": _torch(CachedAttentionStack, (1, 1, 384), *[(1, 6, 512, 64)] * 12),
    "bert": lambda path: export(_bert(), (torch.zeros(1, 256, dtype=torch.long),), path),
    "swin": lambda path: export(_swin(), (torch.randn(1, 3, 224, 224),), path),
    "whisper": lambda path: export(_whisper(), (torch.randn(1, 80, 3000),), path),
    "hrnet": _torch(HRNet, (1, 3, 256, 256)),
    "mobilenet": _torch(mobile_net, (1, 3, 224, 224)),
    "mobilenet_qdq": quantized_mobile_net,
    "lstm_loop": looped_lstm,
    "detector": detector,
}
"""By name, what writes the model to a path."""


def model_path(name: str, folder: Path) -> Path:
    """Return the path of a model, which is written where it is not there yet."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        torch.manual_seed(0)
        MODELS[name](path)
    return path
