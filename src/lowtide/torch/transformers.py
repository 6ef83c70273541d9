"""A callback for Hugging Face's `Trainer` that trains the model within a budget."""

from typing import Any

from lowtide.core.errors import MissingExtraError, one_line
from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.torch.planning.options import checked_options

try:
    from transformers.modeling_utils import PreTrainedModel
    from transformers.trainer_callback import TrainerCallback
except ImportError as error:
    raise MissingExtraError("integrations", one_line(error)) from None

__all__ = ["Budget"]


class TrainerBudget(TrainerCallback):
    """Train within a budget: `Trainer(..., callbacks=[lowtide.torch.transformers.Budget("8 GiB")])`.

    When training begins, the backend "lowtide" compiles the model in place, so saving and evaluation do not change.
    Omit `torch_compile` from the training arguments.
    """

    def __init__(self, budget: GivenBudget = None, **options: Any) -> None:
        """Accept options of the backend; raises UsageError for unknown or incompatible ones."""
        self.options = checked_options(budget, options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compile the model before training.

        The loss is looked up here, once. A model without a loss of its own, such as GPT-2, would do so in each call and
        log a warning, at which TorchDynamo breaks the graph.
        """
        model: Any = kwargs["model"]
        if isinstance(kwargs["model"], PreTrainedModel):
            model.loss_function = model.loss_function
        model.compile(backend="lowtide", options=dict(self.options))


Budget = TrainerBudget
