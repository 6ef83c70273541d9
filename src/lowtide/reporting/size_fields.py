"""The JSON object of `lowtide fits` for training steps."""

from collections.abc import Mapping, Sequence
from typing import TypedDict


class SizeFields(TypedDict):
    """A size of a training step in `lowtide fits`."""

    size: int
    fits: bool
    level: str | None
    persistent_bytes: int
    baseline_peak_bytes: int
    peak_bytes: int
    state_on_host_bytes: int
    parameters_on_host_bytes: int
    updated_on_host_bytes: int
    extra_cost: float
    base_cost: float


class FitsSizesFields(TypedDict):
    """`lowtide fits` for a training step: by batch size or sequence length."""

    name: str
    device: str
    device_bytes: int
    axis: str
    settings: str
    costs: str
    sizes: Sequence[SizeFields]
    largest: Mapping[str, int]
    code: Sequence[str]
