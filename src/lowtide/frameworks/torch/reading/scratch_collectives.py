"""Memory that collectives take while they run, as measured for gloo: it copies what it gathers and scatters."""

from typing import Any

from lowtide.frameworks.torch.internals.process_groups import backend_of
from lowtide.frameworks.torch.reading.tensor_forms import bytes_of

Arguments = dict[str, Any]


def gathered(given: Arguments, result: Any) -> int:
    """Gloo gathers into one flat copy of the result."""
    return bytes_of(result) if _runs_on_gloo(given) else 0


def scattered(given: Arguments, _: Any) -> int:
    """Gloo reduces a flat copy of what is given."""
    return bytes_of(given["input"]) if _runs_on_gloo(given) else 0


def _runs_on_gloo(given: Arguments) -> bool:
    return given["input"].device.type == "cpu" and "gloo" in (backend_of(given["group_name"]) or "")
