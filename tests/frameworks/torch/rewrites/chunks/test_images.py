"""Convolutions in chunks of images: bits are equal, and sums over images are not in chunks."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide.torch as lt
from lowtide.engine.plan import Plan
from tests.frameworks.torch.rewrites.examples import chunked

IMAGES, SIZE, CHANNELS = 8, 64, 16


class Unet(nn.Module):
    """Two resolutions, with norms of given statistics or of single images."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.GroupNorm(4, CHANNELS), nn.SiLU())
        self.coarse = nn.Sequential(nn.Conv2d(CHANNELS, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.up, self.last = nn.ConvTranspose2d(32, CHANNELS, 2, 2), nn.Conv2d(2 * CHANNELS + 32, 2, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        fine = self.fine(images)
        coarse = self.coarse(functional.max_pool2d(fine, 2))
        resized = functional.interpolate(coarse, scale_factor=2, mode="bilinear")
        gate = functional.adaptive_avg_pool2d(resized, 1).mean(1, keepdim=True).sigmoid()
        return self.last(torch.cat([fine, self.up(coarse), resized], 1)) * gate


class Residual(nn.Module):
    """A residual network with in-place ops."""

    def __init__(self) -> None:
        super().__init__()
        layers = (nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS), nn.ReLU(inplace=True))
        self.first = nn.Sequential(*layers)
        self.second = nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS))
        self.last = nn.Linear(CHANNELS, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        kept = self.first(images)
        added = self.second(kept)
        added += kept
        return self.last(functional.adaptive_avg_pool2d(added.relu_(), 1).flatten(1))


class Style(nn.Module):
    """Trained images, with the loss of an untrained network."""

    def __init__(self) -> None:
        super().__init__()
        layers = (
            nn.Conv2d(3, CHANNELS, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(CHANNELS, 8, 3),
            nn.ReLU(),
        )
        self.network = nn.Sequential(*layers, nn.AvgPool2d(2)).requires_grad_(False)
        self.images = nn.Parameter(torch.randn(IMAGES, 3, SIZE, SIZE))
        self.wanted = nn.Buffer(self.network(torch.randn(IMAGES, 3, SIZE, SIZE)))

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        return (self.network(self.images * scale) - self.wanted).square().mean()


def check_chunks(program: Any) -> None:
    """Check that a program in chunks has equal bits and needs less than half."""
    opened = lt.TorchModel(program)
    assert opened.in_chunks is not None
    assert "the largest product in" in opened.in_chunks.name
    measured = opened.measure(Plan.baseline(opened.in_chunks), timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes < 0.5 * measured.before_bytes


def test_a_network_without_statistics_of_the_batch_computes_some_images_at_a_time() -> None:
    torch.manual_seed(0)
    check_chunks((Unet().eval().requires_grad_(False), (torch.randn(IMAGES, 3, SIZE, SIZE),)))


def test_so_does_a_network_in_channels_last_format() -> None:
    torch.manual_seed(0)
    images = torch.randn(IMAGES, 3, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    check_chunks((Unet().eval().requires_grad_(False).to(memory_format=torch.channels_last), (images,)))


def test_so_does_a_network_with_in_place_ops() -> None:
    torch.manual_seed(0)
    check_chunks((Residual().eval().requires_grad_(False), (torch.randn(IMAGES, 3, SIZE, SIZE),)))


def test_so_does_a_backward_pass_without_gradients_of_weights() -> None:
    torch.manual_seed(0)
    check_chunks((Style(), (torch.ones(1),)))


def test_gradients_of_weights_sum_over_images_in_an_order_of_their_own() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(3, CHANNELS, 3, padding=1)
    program = (
        lambda images: functional.avg_pool2d(layer(images), 4).square().mean(),
        (torch.randn(IMAGES, 3, SIZE, SIZE),),
    )
    split = chunked(lt.capture(program))
    assert split.module is None
    (note,) = split.left_whole
    assert "'convolution_backward' sums over rows in its own order" in note


def test_batch_statistics_are_not_in_chunks() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS)).train().requires_grad_(False)
    assert chunked(lt.capture((layers, (torch.randn(IMAGES, 3, SIZE, SIZE),)))).module is None


class Decoder(nn.Module):
    """A decoder whose images are enlarged by an op without weights."""

    def __init__(self, larger: nn.Module) -> None:
        super().__init__()
        layers = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.SiLU(), nn.Conv2d(CHANNELS, 3, 3, padding=1)
        self.layers = nn.Sequential(larger, *layers).requires_grad_(False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images)


@pytest.mark.parametrize(
    "larger",
    [
        nn.Upsample(scale_factor=4),
        nn.Upsample(scale_factor=4, mode="bilinear"),
        nn.Sequential(nn.Upsample(scale_factor=4), nn.SiLU(), nn.ReflectionPad2d(1)),
    ],
    ids=["nearest", "bilinear", "padded"],
)
def test_images_that_an_upsampling_enlarges_go_in_chunks(larger: nn.Module) -> None:
    model = lt.TorchModel((Decoder(larger), (torch.randn(IMAGES, CHANNELS, 24, 24),)))
    assert model.in_chunks is not None
    measured = model.measure(Plan.baseline(model.in_chunks), timed_calls=1)
    assert measured.outputs_equal
    assert measured.after_bytes < 0.5 * measured.before_bytes
