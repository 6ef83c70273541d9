"""Options of the backend for compilations that cannot be given any: set in the program, or in the environment."""

import os
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.engine.planning.budget import read_budget

BUDGET_VARIABLE = "LOWTIDE_BUDGET"
"""The environment variable that holds a budget as one writes it: "8 GiB", "70%"."""

_configured: dict[str, Any] = {}


def default_options() -> dict[str, Any]:
    """Return what was configured and, where no budget was, the one of the environment.

    Raises UsageError where the environment holds no budget.
    """
    text = os.environ.get(BUDGET_VARIABLE, "").strip()
    if not text or "budget" in _configured:
        return dict(_configured)
    try:
        read_budget(text)
    except UsageError as error:
        raise UsageError(f"{BUDGET_VARIABLE} in the environment: {error}") from None
    return {"budget": text, **_configured}


def set_default_options(options: dict[str, Any]) -> None:
    """Set all of the options that were configured."""
    _configured.clear()
    _configured.update(options)
