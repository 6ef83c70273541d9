"""The JSON fields of a memory snapshot in `lowtide inspect`."""

from collections.abc import Sequence
from typing import TypedDict


class RecordedLineFields(TypedDict):
    """The tensors at a recorded peak that one source line allocated."""

    where: str
    size_bytes: int
    n_tensors: int


class RecordedFields(TypedDict):
    """The peak of one device in a memory snapshot."""

    space: str
    n_events: int
    peak_event: int
    peak_bytes: int
    failed_bytes: int | None
    failed_at: str | None
    device_free_bytes: int | None
    reserved_bytes: int | None
    fragmentation_bytes: int | None
    kept_bytes: int
    largest_bytes: int
    largest_at: str
    floor_bytes: int
    most_saved_bytes: int
    lines: Sequence[RecordedLineFields]
