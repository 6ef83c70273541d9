"""For users of Hugging Face's `Trainer`: a callback that trains the model within a budget."""

from typing import Any

from torch import nn
from transformers.trainer_callback import TrainerCallback

from lowtide.frameworks.torch.compile.callback_options import checked_options
from lowtide.planning.budget import GivenBudget

__all__ = ["Budget"]


class TrainerBudget(TrainerCallback):
    """Train within a budget: `Trainer(..., callbacks=[lowtide.torch.transformers.Budget("8 GiB")])`.

    When training begins, the model is compiled in its place by the backend "lowtide", so that it is saved and evaluated
    as ever. Leave `torch_compile` out of the training arguments.
    """

    def __init__(self, budget: GivenBudget = None, **options: Any) -> None:
        """Take a budget and the other options of the backend; raises UsageError for any that does not exist or fit."""
        self.options = checked_options(budget, options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compile the model that is about to be trained."""
        model: nn.Module = kwargs["model"]
        model.compile(backend="lowtide", options=self.options)


Budget = TrainerBudget
