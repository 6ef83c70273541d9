"""Fine-tuning by others' trainers within a budget: LoRA by peft, and TRL's SFT trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from tests.frameworks.torch.integrations.words import llama, tokenizer, tokens

pytest.importorskip("accelerate", reason="needs the extra integrations")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.filterwarnings("default")  # others' warnings


def _arguments(folder: Path) -> dict[str, Any]:
    return {
        "output_dir": str(folder),
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
    }


def _lora() -> Any:
    return peft.LoraConfig(r=4, task_type="CAUSAL_LM", lora_dropout=0.1)


def _with_trainer(folder: Path, callbacks: list[Any]) -> Any:
    rows = [{"input_ids": row, "labels": row} for row in tokens()]
    model = peft.get_peft_model(llama(), _lora())
    arguments = transformers.TrainingArguments(**_arguments(folder))
    return transformers.Trainer(model, arguments, train_dataset=rows, callbacks=callbacks)


def _with_sft(folder: Path, callbacks: list[Any], **keywords: Any) -> Any:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"text": " ".join(f"w{word}" for word in row.tolist())} for row in tokens()])
    arguments = trl.SFTConfig(max_length=64, bf16=False, gradient_checkpointing=False, **_arguments(folder))
    return trl.SFTTrainer(
        llama(), args=arguments, train_dataset=rows, processing_class=tokenizer(), callbacks=callbacks, **keywords
    )


def _with_sft_and_lora(folder: Path, callbacks: list[Any]) -> Any:
    return _with_sft(folder, callbacks, peft_config=_lora())


@pytest.mark.parametrize("trainer_of", [_with_trainer, _with_sft, _with_sft_and_lora], ids=["lora", "sft", "sft-lora"])
def test_fine_tuning_within_a_budget_has_the_losses_of_the_plain_run(trainer_of: Any, tmp_path: Path) -> None:
    """At a peak below that of the plain run; the budget covers the model, not the optimizer."""
    from lowtide.torch.transformers import Budget

    def trained(*callbacks: Any) -> tuple[list[float], int]:
        torch.compiler.reset()
        torch.manual_seed(0)
        trainer = trainer_of(tmp_path, list(callbacks))
        peak, _ = peak_of_call(trainer.train, torch.device("cpu"))
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], peak

    losses, peak = trained()
    found, lower = trained(Budget("60%", compiler="eager"))
    assert found == losses
    assert lower < 0.85 * peak
