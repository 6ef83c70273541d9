"""Reading and setting the random state as ops, so that activation checkpointing replays its draws in a graph too."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@torch.library.custom_op("lowtide::get_rng_state", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def get_rng_state() -> torch.Tensor:
    """Return the state of the default CPU generator."""
    return torch.random.default_generator.get_state()


@get_rng_state.register_fake
def _(  # pyright: ignore[reportUnusedFunction]
) -> torch.Tensor:
    return torch.empty(torch.random.default_generator.get_state().shape, dtype=torch.uint8)


@torch.library.custom_op("lowtide::set_rng_state", mutates_args=("state",))
def set_rng_state(state: torch.Tensor) -> None:
    """Set the state of the default CPU generator; declared as a mutation so that nothing drops or moves it."""
    torch.random.default_generator.set_state(state)


@set_rng_state.register_fake
def _(state: torch.Tensor) -> None:  # pyright: ignore[reportUnusedFunction]
    return None


@contextmanager
def recorded_rng_state() -> Iterator[None]:
    """While tracing, turn `torch.get_rng_state` and `torch.set_rng_state` into ops of the graph."""
    get, set_ = torch.get_rng_state, torch.set_rng_state
    torch.get_rng_state = get_rng_state  # type: ignore[assignment]
    torch.set_rng_state = set_rng_state  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.get_rng_state, torch.set_rng_state = get, set_
