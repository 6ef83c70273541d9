"""Fine-tuning by others' trainers within a budget: LoRA by peft, and TRL's SFT trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
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


_OF_TRAINER = {"compute_loss": transformers.Trainer.compute_loss}
"""The method that docs/transformers.md moves into the graph, so that the budget includes the loss."""


def _with_sft(folder: Path, callbacks: list[Any], *, loss_in_graph: bool = False, **keywords: Any) -> Any:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    trainer_class: Any = type("LossInGraph", (trl.SFTTrainer,), _OF_TRAINER) if loss_in_graph else trl.SFTTrainer
    rows = datasets.Dataset.from_list([{"text": " ".join(f"w{word}" for word in row.tolist())} for row in tokens()])
    arguments = trl.SFTConfig(max_length=64, bf16=False, gradient_checkpointing=False, **_arguments(folder))
    return trainer_class(
        llama(), args=arguments, train_dataset=rows, processing_class=tokenizer(), callbacks=callbacks, **keywords
    )


def _with_sft_and_lora(folder: Path, callbacks: list[Any]) -> Any:
    return _with_sft(folder, callbacks, peft_config=_lora())


def _with_loss_in_graph(folder: Path, callbacks: list[Any]) -> Any:
    return _with_sft(folder, callbacks, loss_in_graph=True)


def _trained(trainer_of: Any, folder: Path, *callbacks: Any) -> tuple[list[float], int]:
    """Return losses and the peak."""
    torch.compiler.reset()
    forget_programs()
    torch.manual_seed(0)
    trainer = trainer_of(folder, list(callbacks))
    peak, _ = peak_of_call(trainer.train, torch.device("cpu"))
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], peak


def test_lora_within_a_budget_has_the_losses_of_the_plain_run_at_a_lower_peak(tmp_path: Path) -> None:
    from lowtide.torch.transformers import Budget

    losses, peak = _trained(_with_trainer, tmp_path)
    found, lower = _trained(_with_trainer, tmp_path, Budget("60%", compiler="eager"))
    assert found == losses
    assert lower < 0.7 * peak


@pytest.mark.parametrize("trainer_of", [_with_sft, _with_sft_and_lora], ids=["whole", "lora"])
def test_sft_within_a_budget_has_the_losses_of_the_plain_run(trainer_of: Any, tmp_path: Path) -> None:
    """The graphs of the model need less. TRL's own loss runs outside of them."""
    from lowtide.torch.transformers import Budget

    losses, _ = _trained(trainer_of, tmp_path)
    found, _ = _trained(trainer_of, tmp_path, Budget("60%", compiler="eager"))
    assert found == losses
    results = [program.result for program in planned_programs()]
    assert sum(each.peak_bytes["cpu"] for each in results) < sum(each.baseline_peak_bytes["cpu"] for each in results)


def test_sft_with_the_loss_of_the_model_keeps_its_loss_in_the_budget(tmp_path: Path) -> None:
    """Losses are bit-equal with and without the budget, and those of TRL up to rounding."""
    from lowtide.torch.transformers import Budget

    losses, peak = _trained(_with_loss_in_graph, tmp_path)
    found, lower = _trained(_with_loss_in_graph, tmp_path, Budget("60%", compiler="eager"))
    assert found == losses
    assert lower < 0.7 * peak
    by_trl, peak_by_trl = _trained(_with_sft, tmp_path)
    assert losses == pytest.approx(by_trl, rel=1e-5)
    assert peak < peak_by_trl
