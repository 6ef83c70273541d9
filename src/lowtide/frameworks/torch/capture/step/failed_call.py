"""The note added to an exception in a training step's call."""

from collections.abc import Sequence

_MOST_NAMES = 4


def describe_failed_call(begun: Sequence[str] | None, n_parameters: int, *, drops_gradients: bool) -> str:
    """Return a line about the parameters whose update had begun, None if unknown."""
    if begun is None:
        parts = ["lowtide: some updates of this call may be complete and others not; load a checkpoint"]
    elif begun:
        named = ", ".join([*begun[:_MOST_NAMES], *(["..."] if len(begun) > _MOST_NAMES else [])])
        parts = [
            f"lowtide: this call had begun to update {len(begun)} of {n_parameters} parameters ({named}); "
            "load a checkpoint"
        ]
    else:
        parts = ["lowtide: this call failed before its first update; parameters and optimizer state are unchanged"]
    if drops_gradients:
        parts.append("gradients of earlier calls are dropped, and the next call starts a step")
    return "; ".join(parts)
