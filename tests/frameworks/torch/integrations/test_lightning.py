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


class Manual(Net):
    """The same, with the backward pass and the update in `training_step`."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.optimizers().zero_grad()
        self.manual_backward(loss)
        self.optimizers().step()
        return loss.detach()


class AotEager(lightning.Callback):
    """What PyTorch's own backend "aot_eager" makes of `training_step`."""

    def on_fit_start(self, trainer: object, pl_module: Net) -> None:
        pl_module.log = torch.compiler.disable(pl_module.log)
        pl_module.training_step = torch.compile(pl_module.training_step, backend="aot_eager")


def _trained(folder: Path, module: Net, *callbacks: Any, precision: str = "32-true") -> tuple[list[torch.Tensor], int]:
    torch.manual_seed(1)
    trainer = lightning.Trainer(
        default_root_dir=folder,
        max_epochs=1,
        accelerator="cpu",
        precision=precision,
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


@pytest.mark.share_of_cases
@pytest.mark.parametrize(("kind", "precision"), [(Net, "bf16-mixed"), (Manual, "32-true")])
def test_where_compiled_code_rounds_as_eager_does_not_the_bits_are_those_of_aot_eager(
    tmp_path: Path, kind: type[Net], precision: str
) -> None:
    """Dropout in half precision, and an optimizer in the graph, see the page on Lightning."""
    from lowtide.torch.lightning import Budget

    def losses(*callbacks: Any) -> list[torch.Tensor]:
        torch._dynamo.reset()
        torch.manual_seed(0)
        return _trained(tmp_path, kind(), *callbacks, precision=precision)[0]

    found, expected = losses(Budget("60%", compiler="eager")), losses(AotEager())
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(found, losses(), strict=True))


def test_mixed_precision_without_dropout_changes_no_bit(tmp_path: Path) -> None:
    from lowtide.torch.lightning import Budget

    def losses(*callbacks: Any) -> list[torch.Tensor]:
        module = _new()
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
        return _trained(tmp_path, module, *callbacks, precision="bf16-mixed")[0]

    found, expected = losses(Budget("60%", compiler="eager")), losses()
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
