"""Hugging Face's own Trainer within a budget: the losses of the plain run, at a lower peak."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call

pytest.importorskip("accelerate", reason="needs the extra integrations")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("default")  # others' warnings


def _trained(folder: Path, *callbacks: Any) -> tuple[list[float], int, dict[str, torch.Tensor]]:
    """Return losses, the peak and the weights after two steps of a small GPT-2 with dropout."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=64, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    tokens = torch.randint(0, 64, (16, 64))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=8,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=list(callbacks))
    peak, _ = peak_of_call(trainer.train, torch.device("cpu"))
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, peak, model.state_dict()


def test_the_callback_lowers_the_peak_and_changes_no_bit(tmp_path: Path) -> None:
    """The model is one graph. TorchDynamo would break it at a warning that transformers logs for its loss."""
    from lowtide.torch.transformers import Budget

    losses, peak, weights = _trained(tmp_path)
    torch.compiler.reset()
    counters.clear()
    found, lower, trained = _trained(tmp_path, Budget("70%", compiler="eager"))
    assert found == losses
    assert list(trained) == list(weights)
    assert all(torch.equal(trained[name], weights[name]) for name in weights)
    assert lower < 0.8 * peak
    assert counters["stats"]["unique_graphs"] == 1


def test_an_option_that_does_not_exist_is_refused_when_the_callback_is_made() -> None:
    from lowtide.torch.transformers import Budget

    with pytest.raises(UsageError, match="no option 'bugdet'"):
        Budget("50%", bugdet=1)
    with pytest.raises(UsageError, match="cannot read"):
        Budget("half")


class LossAlone(torch.nn.Module):
    """A causal language model that returns no logits, as the page shows it."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.model(**batch).loss}


@pytest.mark.parametrize(("alone", "budget", "most"), [(False, "60%", 2.9), (True, "35%", 1.2)])
def test_logits_are_whole_only_where_a_model_returns_them(alone: bool, budget: str, most: float) -> None:
    """Beside them stands their gradient, which PyTorch makes of zeros."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        num_hidden_layers=1,
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=4099,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    trained = LossAlone(model) if alone else model
    tokens = torch.randint(1, 4099, (6, 384))

    def step(run: Any) -> list[torch.Tensor]:
        model.zero_grad()
        output = run(input_ids=tokens, labels=tokens)
        output["loss"].backward()
        return [parameter.grad for parameter in model.parameters()]

    torch.compiler.reset()
    run = torch.compile(trained, backend="lowtide", options={"compiler": "eager", "budget": budget})
    expected = [gradient.clone() for gradient in step(trained)]
    assert all(map(torch.equal, step(run), expected))
    peak, _ = peak_of_call(lambda: step(run), torch.device("cpu"))
    assert peak < most * tokens.numel() * 4099 * 4
