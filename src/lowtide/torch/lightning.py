"""A Lightning callback that trains a LightningModule within a budget."""

from typing import Any

from lowtide.core.errors import MissingExtraError, one_line
from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.torch.internals.compiling import compiled, uncompiled
from lowtide.frameworks.torch.planning.options import checked_options

try:
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise MissingExtraError("integrations", one_line(error)) from None

__all__ = ["Budget"]


class LightningBudget(Callback):
    """Train within a budget: `Trainer(..., callbacks=[lowtide.torch.lightning.Budget("8 GiB")])`.

    During `fit`, the backend "lowtide" compiles `training_step`, including its loss. Logging runs outside of the
    graphs.
    """

    def __init__(self, budget: GivenBudget = None, **options: Any) -> None:
        """Accept options of the backend; raises UsageError for unknown or incompatible ones."""
        self.options = checked_options(budget, options)
        self._plain: dict[str, Any] = {}

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._plain = {name: getattr(pl_module, name) for name in ("training_step", "log", "log_dict")}
        for name, method in self._plain.items():
            setattr(pl_module, name, uncompiled(method))
        pl_module.training_step = compiled(self._plain["training_step"], self.options)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        for name, method in self._plain.items():
            setattr(pl_module, name, method)


Budget = LightningBudget
