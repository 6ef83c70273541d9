"""Convolutions in chunks of images: no bit changes, and what sums over images is left whole."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

import lowtide.torch as lt
from lowtide.engine.plan import Plan
from lowtide.frameworks.torch.rewrites.chunks.chunk_program import chunk_program

IMAGES, SIZE, CHANNELS = 8, 64, 16


class Unet(nn.Module):
    """Two resolutions and what leads from one to the other; every norm knows its statistics or is of one image."""

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
    """What overwrites its own results, as residual networks do."""

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
    """Images that are learned, such that a network that is not finds in them what it found in others."""

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
    """Check the bits of a program in chunks, and that it needs less than half."""
    opened = lt.TorchModel(program)
    assert opened.in_chunks is not None
    assert "the largest product in" in opened.in_chunks.name
    measured = opened.measure(Plan.baseline(opened.in_chunks))
    assert measured.outputs_equal
    assert measured.after_bytes < 0.5 * measured.before_bytes


def test_a_network_without_statistics_of_the_batch_computes_some_images_at_a_time() -> None:
    torch.manual_seed(0)
    check_chunks((Unet().eval().requires_grad_(False), (torch.randn(IMAGES, 3, SIZE, SIZE),)))


def test_so_does_one_whose_channels_stand_together() -> None:
    torch.manual_seed(0)
    images = torch.randn(IMAGES, 3, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    check_chunks((Unet().eval().requires_grad_(False).to(memory_format=torch.channels_last), (images,)))


def test_what_overwrites_its_own_results_is_no_hindrance() -> None:
    torch.manual_seed(0)
    check_chunks((Residual().eval().requires_grad_(False), (torch.randn(IMAGES, 3, SIZE, SIZE),)))


def test_so_does_the_backward_pass_where_no_weight_has_a_gradient() -> None:
    torch.manual_seed(0)
    check_chunks((Style(), (torch.ones(1),)))


def test_gradients_of_weights_sum_over_images_in_an_order_of_their_own() -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(3, CHANNELS, 3, padding=1)
    program = (
        lambda images: functional.avg_pool2d(layer(images), 4).square().mean(),
        (torch.randn(IMAGES, 3, SIZE, SIZE),),
    )
    split = chunk_program(lt.capture(program))
    assert split.captured is None
    (note,) = split.left_whole
    assert "'convolution_backward' sums over rows in its own order" in note


def test_statistics_of_the_batch_are_left_whole() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.BatchNorm2d(CHANNELS)).train().requires_grad_(False)
    assert chunk_program(lt.capture((layers, (torch.randn(IMAGES, 3, SIZE, SIZE),)))).captured is None
