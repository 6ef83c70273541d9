"""The options that the callbacks for training loops hand to the backend."""

from typing import Any

from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.torch.compile.options import Options


def checked_options(budget: GivenBudget, options: dict[str, Any]) -> dict[str, Any]:
    """Return a budget and other options for the backend; a budget that is None is left to the defaults.

    Raises UsageError for options that do not exist or fit.
    """
    given = options if budget is None else {"budget": budget, **options}
    if given:
        Options.parse(given)
    return given
