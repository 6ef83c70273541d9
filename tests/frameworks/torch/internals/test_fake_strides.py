"""Results on fake tensors have the strides of a run, whatever the strides of the operands."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

from lowtide.frameworks.torch.internals.fake_strides import strides_as_in_eager
from lowtide.frameworks.torch.internals.fake_tensors import faked, new_fake_mode

aten = torch.ops.aten
SHAPE = (4, 6, 8)
Two = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ONES, HALF = torch.ones(8), torch.full((4,), 0.5)
ALL = [True, True, True]

OPS: dict[str, Two] = {
    "batch norm": lambda x, _: aten.native_batch_norm(x, HALF, HALF, HALF, HALF, True, 0.1, 1e-5)[0],
    "batch norm's gradient": lambda x, y: aten.native_batch_norm_backward(
        x, y, HALF, HALF, HALF, HALF, HALF, True, 1e-5, ALL
    )[0],
    "channel shuffle": lambda x, _: aten.native_channel_shuffle(x.contiguous(memory_format=torch.channels_last), 2),
    "cross entropy of two classes": lambda x, y: aten.binary_cross_entropy(x, y, None, 0),
    "dropout": lambda x, y: aten.native_dropout_backward(x, y > 0.5, 2.0),
    "elu": lambda x, y: aten.elu_backward(x, 1.0, 1.0, 1.0, False, y),
    "gelu": aten.gelu_backward,
    "gated linear unit": lambda x, y: aten.glu_backward(x[..., :4], y, -1),
    "group norm": lambda x, y: aten.native_group_norm_backward(
        x.contiguous(), y, torch.ones(len(x), 2), torch.ones(len(x), 2), HALF, len(x), 4, 48, 2, ALL
    )[0],
    "hardsigmoid": aten.hardsigmoid_backward,
    "hardswish": aten.hardswish_backward,
    "hardtanh": lambda x, y: aten.hardtanh_backward(x, y, 0.0, 1.0),
    "layer norm": lambda x, y: aten.native_layer_norm_backward(
        x, y, [8], y.mean(-1, keepdim=True), y.std(-1, keepdim=True), ONES, ONES, ALL
    )[0],
    "leaky ReLU": lambda x, y: aten.leaky_relu_backward(x, y, 0.1, False),
    "log-softmax": lambda x, y: aten._log_softmax_backward_data(x, y, -1, torch.float32),
    "log-sigmoid": lambda x, _: aten.log_sigmoid_forward(x)[0],
    "log-sigmoid, saved for backward": lambda x, _: aten.log_sigmoid_forward(x)[1],
    "mean squared error": lambda x, y: aten.mse_loss_backward(x, x, y, 0),
    "product": aten.mul.Tensor,
    "ReLU": lambda x, y: aten.threshold_backward(x, y, 0.5),
    "ReLU of random slopes": lambda x, y: aten.rrelu_with_noise(x, y.contiguous(), 0.1, 0.3, True),
    "repeated border": lambda x, y: aten.replication_pad2d_backward(
        torch.nn.functional.pad(x, (1, 1, 1, 1), mode="replicate"), y, [1, 1, 1, 1]
    ),
    "roll": lambda x, _: aten.roll(x, [1, -1], [2, 3]),
    "sigmoid": aten.sigmoid_backward,
    "SiLU": aten.silu_backward,
    "softmax": lambda x, y: aten._softmax_backward_data(x, y, -1, torch.float32),
    "softplus": lambda x, y: aten.softplus_backward(x, y, 1.0, 20.0),
    "tanh": aten.tanh_backward,
}


def forms(images: int) -> list[torch.Tensor]:
    """Return batches of one shape with several strides."""
    b, c, d = SHAPE
    a = images
    return [
        torch.rand(a, b, c, d),
        torch.rand(a, c, b, d).transpose(1, 2),
        torch.rand(a, b, d, c).transpose(2, 3),
        torch.rand(a, b, c, d).contiguous(memory_format=torch.channels_last),
        torch.rand(a, 1, c, d).expand(a, b, c, d),
        torch.rand(d, a, b, c).permute(1, 2, 3, 0),
        torch.rand(a, b, c, 2 * d)[..., ::2],
        torch.rand(a, c * d, b).transpose(1, 2).reshape(a, b, c, d),
    ]


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("name", OPS)
def test_results_have_the_strides_of_a_run(name: str, images: int) -> None:
    mode: Any = new_fake_mode()
    for x, y in product(forms(images), forms(images)):
        expected = OPS[name](x, y)
        with strides_as_in_eager(), mode:
            found = OPS[name](faked(mode, x), faked(mode, y))
        assert (found.shape, found.stride()) == (expected.shape, expected.stride()), (x.stride(), y.stride())
