"""A compiled forward pass computes its largest products in chunks, with the bits of eager."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call

TOKENS, WIDTH, CLASSES = 512, 32, 4099
LOGITS = TOKENS * CLASSES * 4


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()


def compiled(program: Any, **more: Any) -> Any:
    """Compile for the eager compiler."""
    return torch.compile(program, backend="lowtide", options={"compiler": "eager"}, **more)


def perplexity() -> Any:
    """Return the loss of a head, and a batch."""
    head = nn.Linear(WIDTH, CLASSES)
    tokens = torch.randint(0, CLASSES, (TOKENS,))
    return lambda x: functional.cross_entropy(head(x), tokens), torch.randn(TOKENS, WIDTH)


def test_no_logits_are_whole_in_a_loss_without_gradients() -> None:
    program, batch = perplexity()
    run = compiled(program)
    with torch.no_grad():
        assert torch.equal(run(batch), program(batch))
        assert peak_of_call(lambda: run(batch), torch.device("cpu"))[0] < LOGITS / 4


def test_sizes_that_change_stay_whole() -> None:
    program, batch = perplexity()
    run = compiled(lambda x: program(x.repeat(2, 1)[:TOKENS]), dynamic=True)
    with torch.no_grad():
        assert torch.equal(run(batch), program(batch))
