"""Reading and setting the random state as ops, so that activation checkpointing replays its draws in a graph too."""

from collections.abc import Generator
from contextlib import contextmanager

import torch

from lowtide.frameworks.torch.internals.operators import register_fake
from lowtide.frameworks.torch.internals.runtime import random_state, random_state_functions, set_random_state


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


register_fake(get_rng_state, _fake_state)
register_fake(set_rng_state, _fake_set)


@contextmanager
def recorded_rng_state() -> Generator[None]:
    """While tracing, turn `torch.get_rng_state` and `torch.set_rng_state` into ops of the graph."""
    with random_state_functions(get_rng_state, set_rng_state):
        yield
