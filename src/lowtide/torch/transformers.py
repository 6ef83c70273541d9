"""For users of Hugging Face's `Trainer`: a callback that trains the model within a budget."""

from typing import Any

from lowtide.core.errors import MissingExtraError, one_line
from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.torch.internals.compiling import compile_in_place
from lowtide.frameworks.torch.planning.options import checked_options

try:
    from transformers.trainer_callback import TrainerCallback
except ImportError as error:
    raise MissingExtraError("integrations", one_line(error)) from None

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
        compile_in_place(kwargs["model"], self.options)


Budget = TrainerBudget
