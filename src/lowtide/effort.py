"""Names for how much work a search may do; each search has figures of its own for them."""

from typing import Literal

EffortName = Literal["fast", "balanced", "max"]
DEFAULT_EFFORT: EffortName = "balanced"
