"""Training of convolutions in chunks of images, equal up to rounding."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide
import lowtide.torch as lt
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import Chunking
from lowtide.frameworks.torch.rewrites.chunks.region_search import find_product_regions
from lowtide.frameworks.torch.rewrites.chunks.rounding import difference_of
from tests.frameworks.torch.reading.measured_scratch import one_thread
from tests.frameworks.torch.rewrites.examples import chunked

IMAGES, SIZE, CHANNELS, CLASSES = 8, 64, 16, 5
EXACT = ("reorder", "share", "recompute")
ROUNDED = (*EXACT, "rounding")
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Unet(nn.Module):
    """Two resolutions, with norms of single images, weights per channel, and attention between."""

    def __init__(self) -> None:
        super().__init__()
        self.fine = nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.GroupNorm(4, CHANNELS), nn.SiLU())
        self.coarse = nn.Sequential(nn.Conv2d(CHANNELS, 32, 3, 4, padding=1), nn.GroupNorm(4, 32), nn.ReLU())
        self.known, self.scale = nn.Linear(4, 32), nn.Parameter(torch.rand(32, 1, 1))
        self.norm, self.mixed = nn.LayerNorm(32), nn.Linear(32, 96)
        self.up, self.last = nn.ConvTranspose2d(32, CHANNELS, 4, 4), nn.Conv2d(2 * CHANNELS + 32, CLASSES, 1)

    def forward(self, images: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        fine = self.fine(images)
        coarse = self.coarse(functional.avg_pool2d(fine, 1)) * self.scale + self.known(known)[:, :, None, None]
        parts = self.mixed(self.norm(coarse.flatten(2).transpose(1, 2))).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value)
        coarse = coarse + attended.transpose(1, 2).flatten(2).transpose(1, 2).reshape(coarse.shape)
        resized = functional.interpolate(coarse, scale_factor=4, mode="bilinear")
        return self.last(torch.cat([fine, self.up(coarse), resized], 1))


class Classifier(nn.Module):
    """A classifier of images."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        layers = (nn.Conv2d(3, CHANNELS, 3, padding=1), norm(CHANNELS), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.layers = nn.Sequential(*layers, nn.Conv2d(CHANNELS, 32, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.last = nn.Linear(128, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(images))


def _pixel_classes() -> torch.Tensor:
    wanted = torch.randint(0, CLASSES, (IMAGES, SIZE, SIZE))
    wanted[1, :9] = 1
    return wanted


def _images() -> torch.Tensor:
    return torch.rand(IMAGES, CLASSES, SIZE, SIZE)


def _classified() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(IMAGES, 3, 2 * SIZE, 2 * SIZE), torch.randint(0, CLASSES, (IMAGES,))


def _weighted(pixels: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(pixels, wanted, torch.arange(1.0, 1 + CLASSES), ignore_index=1)


LOSSES: dict[str, tuple[Loss, Callable[[], torch.Tensor]]] = {
    "cross entropy of pixels": (functional.cross_entropy, _pixel_classes),
    "with weights, some ignored": (_weighted, _pixel_classes),
    "summed": (lambda x, y: functional.cross_entropy(x, y, reduction="sum") / 1000, _pixel_classes),
    "squares": (functional.mse_loss, _images),
    "Huber": (functional.huber_loss, _images),
    "smooth": (functional.smooth_l1_loss, _images),
    "absolute": (functional.l1_loss, _images),
    "binary": (lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y), _images),
    "with logits": (functional.binary_cross_entropy_with_logits, _images),
}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    forget_programs()


def step_of(model: nn.Module, loss: Loss, batch: tuple[torch.Tensor, ...], optimizer: Any = None) -> lt.TorchModel:
    """Return a training step as a program. The last of the batch is the target of the loss."""
    kind = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = lt.TrainingStep(model, lambda model, *given: loss(model(*given[:-1]), given[-1]), kind)
    return lt.TorchModel((step, batch))


@pytest.mark.share_of_cases
@pytest.mark.parametrize("name", LOSSES)
def test_a_step_in_chunks_of_images_is_equal_for_every_loss(name: str) -> None:
    loss, wanted = LOSSES[name]
    batch = (torch.randn(IMAGES, 3, SIZE, SIZE), torch.randn(IMAGES, 4), wanted())
    program = step_of(Unet(), loss, batch)
    with one_thread():
        found = lowtide.minimize(program, allow=ROUNDED, budget="30%", effort="fast")
        assert found.to_rounding
        measured = program.measure(found.plan, timed_calls=1)
    assert measured.after_bytes <= found.peak_bytes["cpu"] + 256
    assert measured.after_bytes < 0.3 * measured.before_bytes
    assert measured.largest_difference is not None
    assert measured.largest_difference < 1e-4


def test_channels_may_be_last() -> None:
    model = Unet().to(memory_format=torch.channels_last)
    images = torch.randn(IMAGES, 3, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    program = step_of(model, functional.mse_loss, (images, torch.randn(IMAGES, 4), _images()))
    with one_thread():
        found = lowtide.minimize(program, allow=ROUNDED, budget="30%", effort="fast")
        measured = program.measure(found.plan, timed_calls=1)
    assert found.to_rounding
    assert measured.outputs_near
    assert measured.after_bytes <= found.peak_bytes["cpu"] + 256
    assert abs(measured.before_bytes - found.baseline_peak_bytes["cpu"]) <= 256
    assert measured.after_bytes < 0.3 * measured.before_bytes


def test_a_classifier_with_a_small_loss_is_in_chunks_of_images() -> None:
    program = step_of(Classifier(lambda channels: nn.GroupNorm(4, channels)), functional.cross_entropy, _classified())
    with one_thread():
        found = lowtide.minimize(program, allow=ROUNDED, budget="30%", effort="fast")
        measured = program.measure(found.plan, timed_calls=1)
    assert found.to_rounding
    assert measured.outputs_near
    assert measured.after_bytes < 0.3 * measured.before_bytes


def test_without_rounding_the_step_is_not_in_chunks_and_reports_advice() -> None:
    program = step_of(Classifier(lambda channels: nn.GroupNorm(4, channels)), functional.cross_entropy, _classified())
    assert program.in_chunks is None
    assert any("in its own order; allow 'rounding' to use chunks" in note for note in program.left_whole())


def test_under_inductor_it_is_not_in_chunks() -> None:
    batch = (torch.randn(IMAGES, 3, SIZE, SIZE), torch.randn(IMAGES, 4), _images())
    split = chunked(step_of(Unet(), functional.mse_loss, batch).captured, Chunking.for_fusion())
    assert not any("product" in done for done in split.done)


def test_batch_statistics_are_not_in_chunks_if_rounding_is_allowed() -> None:
    program = step_of(Classifier(nn.BatchNorm2d), functional.cross_entropy, _classified())
    assert program.form("in chunks", exact=False) is None
    _, (refusal, *_) = find_product_regions(program.captured.graph_module.graph, any_order=True)
    assert "batch_norm" in refusal.reason
    assert "does not treat rows independently" in refusal.reason


def test_the_backend_computes_the_network_twice_for_a_budget_and_gives_the_same_gradients() -> None:
    """The backward pass recomputes the network, since the forward pass ends before it."""
    model = Unet()
    batch = (torch.randn(IMAGES, 3, SIZE, SIZE), torch.randn(IMAGES, 4), _images())

    def loss_of(model: nn.Module, *given: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(model(*given[:2]), given[2])

    def gradients_of(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        model.zero_grad()
        function(model, *batch).backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    wanted = gradients_of(loss_of)
    options = {"compiler": "eager", "budget": "35%", "allow": ROUNDED}
    with one_thread():
        compiled = torch.compile(loss_of, backend="lowtide", options=options)
        found = gradients_of(compiled)
    planned = planned_programs()[-1].result
    assert planned.to_rounding
    assert planned.shortfall is None
    for one, other in zip(wanted, found, strict=True):
        assert difference_of(one, other).share < 1e-4


def test_rounding_scaled_by_an_optimizer_counts_as_rounding() -> None:
    """The gradient of a bias before a norm of single channels is rounding only. Adam scales it to a full step."""
    model = Classifier(lambda channels: nn.GroupNorm(channels, channels))
    first: Any = model.layers[0]
    nn.init.zeros_(first.bias)
    program = step_of(model, functional.cross_entropy, _classified(), torch.optim.Adam(model.parameters(), eps=1e-30))
    before = first.bias.detach().clone()
    with one_thread():
        found = lowtide.minimize(program, allow=ROUNDED, budget="30%", effort="fast")
        measured = program.measure(found.plan, timed_calls=1)
    assert measured.largest_difference is not None
    assert measured.largest_difference > 0.1
    assert measured.outputs_near
    assert torch.equal(first.bias, before)
