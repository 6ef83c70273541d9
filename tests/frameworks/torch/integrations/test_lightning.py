"""Lightning's own Trainer within a budget: the losses of the plain run, at a lower peak."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from tests.frameworks.torch.integrations.nets import Deep, data

lightning = pytest.importorskip("lightning.pytorch", reason="needs the extra integrations")

pytestmark = pytest.mark.filterwarnings("default")  # others' warnings


class Net(lightning.LightningModule):
    """A module that computes its loss in `training_step` and logs it."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.options, self.losses = options, list[torch.Tensor]()
        self.model = Deep()

    def configure_model(self) -> None:
        if self.options is not None:
            self.model.compile(backend="lowtide", options=self.options)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def on_train_batch_end(self, outputs: dict[str, torch.Tensor], batch: object, batch_idx: int) -> None:
        self.losses.append(outputs["loss"].detach())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 1e-3)


def _trained(folder: Path, module: Net, *callbacks: Any) -> tuple[list[torch.Tensor], int]:
    torch.manual_seed(1)
    trainer = lightning.Trainer(
        default_root_dir=folder,
        max_epochs=1,
        accelerator="cpu",
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = torch.utils.data.DataLoader(data(), batch_size=512)
    peak, _ = peak_of_call(lambda: trainer.fit(module, loader), torch.device("cpu"))
    return [*module.losses, *(parameter.detach() for parameter in module.parameters())], peak


def _new(options: dict[str, Any] | None = None) -> Net:
    torch.manual_seed(0)
    return Net(options)


def test_callback_and_configure_model_lower_the_peak_and_change_no_bit(tmp_path: Path) -> None:
    from lowtide.torch.lightning import Budget

    expected, peak = _trained(tmp_path, _new())
    module = _new()
    by_callback = _trained(tmp_path, module, Budget("50%", compiler="eager"))
    by_hand = _trained(tmp_path, _new({"budget": "50%", "compiler": "eager"}))
    assert module.training_step.__func__ is Net.training_step
    for found, lower in (by_callback, by_hand):
        assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
        assert lower < 0.75 * peak
