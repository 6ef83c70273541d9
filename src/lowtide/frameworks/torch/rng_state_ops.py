"""Reading and setting the random state as ops, so that activation checkpointing replays its draws in a graph too."""

from collections.abc import Generator
from contextlib import contextmanager

import torch

from lowtide.frameworks.torch.torch_internals import random_state, set_random_state


@torch.library.custom_op("lowtide::get_rng_state", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def get_rng_state() -> torch.Tensor:
    """Return the state of the default CPU generator."""
    return random_state()


def _fake_state() -> torch.Tensor:
    return torch.empty(random_state().shape, dtype=torch.uint8)


@torch.library.custom_op("lowtide::set_rng_state", mutates_args=("state",))
def set_rng_state(state: torch.Tensor) -> None:
    """Set the state of the default CPU generator; declared as a mutation so that nothing drops or moves it."""
    set_random_state(state)


def _fake_set(state: torch.Tensor) -> None:
    """Do nothing: a fake state has no values."""


get_rng_state.register_fake(_fake_state)  # pyright: ignore[reportUnknownMemberType]
set_rng_state.register_fake(_fake_set)  # pyright: ignore[reportUnknownMemberType]


@contextmanager
def recorded_rng_state() -> Generator[None]:
    """While tracing, turn `torch.get_rng_state` and `torch.set_rng_state` into ops of the graph."""
    get, set_ = torch.get_rng_state, torch.set_rng_state
    torch.get_rng_state = get_rng_state  # type: ignore[assignment]
    torch.set_rng_state = set_rng_state  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.get_rng_state, torch.set_rng_state = get, set_
