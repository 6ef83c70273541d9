"""No plan needs more than what PyTorch makes of the same program without lowtide, and percentages are of that."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from lowtide.frameworks.torch.compile.eager import run_boxed
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

VOCABULARY = 64
Family = tuple[nn.Module, dict[str, torch.Tensor]]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:Dynamo detected")
PYTORCH_ALONE = aot_autograd(
    fw_compiler=run_boxed,
    bw_compiler=run_boxed,
    partition_fn=min_cut_rematerialization_partition,
    keep_inference_input_mutations=True,
)
"""PyTorch's own partition, op by op, freeing every tensor at its last use."""


def language_model(name: str, **sizes: Any) -> Family:
    """Return a model of tokens of the library transformers, random and small."""
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    config = getattr(transformers, f"{name}Config")(vocab_size=VOCABULARY, use_cache=False, **sizes)
    kind = getattr(transformers, f"{name}LMHeadModel", None) or getattr(transformers, f"{name}ForCausalLM")
    return kind(config), {"input_ids": torch.randint(0, VOCABULARY, (2, 8))}


def vision_model() -> Family:
    """Return a vision transformer of the library transformers, random and small."""
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 128}
    model = ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, num_labels=4, **sizes))
    return model, {"pixel_values": torch.randn(4, 3, 16, 16)}


_LLAMA_LIKE = {
    "hidden_size": 32,
    "intermediate_size": 80,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
SCRATCH = 1024
"""Bytes that the scratch of one small attention is estimated too high."""
FAMILIES: dict[str, Callable[[], Family]] = {
    "GPT-2": lambda: language_model("GPT2", n_layer=1, n_embd=32, n_head=2, n_positions=16),
    "Mixtral": lambda: language_model("Mixtral", num_local_experts=2, **_LLAMA_LIKE),
    "Mamba": lambda: language_model("Mamba", num_hidden_layers=1, hidden_size=16, state_size=4),
    "ViT": vision_model,
}


def _gradients(run: Callable[..., Any], model: nn.Module, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(1)
    run(**batch).logits.logsumexp(-1).mean().backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def _peak(model: nn.Module, batch: dict[str, torch.Tensor], backend: Any, **more: Any) -> tuple[int, Any]:
    """Return the measured peak of a step, and its gradients."""
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    run = torch.compile(model, backend=backend, dynamic=False, **more)
    gradients = [gradient.clone() for gradient in _gradients(run, model, batch)]
    model.zero_grad()
    peak, _ = peak_of_call(lambda: run(**batch).logits.logsumexp(-1).mean().backward(), torch.device("cpu"))
    return peak, gradients


@pytest.mark.share_of_cases
@pytest.mark.parametrize("family", FAMILIES)
def test_no_budget_needs_more_than_pytorch_alone_with_the_same_bits(family: str, digest: Callable[[Any], str]) -> None:
    """Measured, at no budget and at one of 100 %; both predict what PyTorch alone takes.

    Plans are held to its predicted peak, which counts some scratch of attention that kernels do not take.
    The library takes other branches in eager mode, so bits are those of PyTorch's partition.
    """
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    model, batch = FAMILIES[family]()
    model.train()
    alone, expected = _peak(model, batch, PYTORCH_ALONE)
    for budget in (None, "100%"):
        peak, gradients = _peak(model, batch, "lowtide", options={"compiler": "eager", "budget": budget})
        assert peak <= alone + SCRATCH
        assert digest(gradients) == digest(expected)
        (program,) = planned_programs()
        assert program.own_peak_bytes == pytest.approx(alone, rel=0.1)
        assert program.result.shortfall is None


def test_a_budget_that_an_allowed_order_misses_says_what_meets_it_and_its_price() -> None:
    """The warning ends with the technique that was left out, and what it costs."""
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(16, 16), nn.GELU())))
    options = {"compiler": "eager", "budget": "70%", "allow": ["reorder"], "costs": "flops"}
    with pytest.warns(UserWarning, match=r"fits with allow=\['reorder', 'share', 'recompute'\] at \+[\d.]+ % time$"):
        torch.compile(model, backend="lowtide", options=options)(torch.randn(256, 16)).sum().backward()
