"""Hugging Face's own Trainer within a budget: the losses of the plain run, at a lower peak."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lowtide.errors import UsageError
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
    from lowtide.torch.transformers import Budget

    losses, peak, weights = _trained(tmp_path)
    found, lower, trained = _trained(tmp_path, Budget("70%", compiler="eager"))
    assert found == losses
    assert list(trained) == list(weights)
    assert all(torch.equal(trained[name], weights[name]) for name in weights)
    assert lower < 0.8 * peak


def test_an_option_that_does_not_exist_is_refused_when_the_callback_is_made() -> None:
    from lowtide.torch.transformers import Budget

    with pytest.raises(UsageError, match="no option 'bugdet'"):
        Budget("50%", bugdet=1)
    with pytest.raises(UsageError, match="cannot read"):
        Budget("half")
