"""Processes that load and run models with ONNX Runtime, and their answers."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lowtide.core.errors import UnsupportedError, UsageError, one_line, unknown
from lowtide.frameworks.model import RuntimeRun
from lowtide.frameworks.onnx.running.levels import LEVELS

_CHILD = "lowtide.frameworks.onnx.running.child"
_MOST_SECONDS = 3600
# After some seconds the runtime's telemetry looks for a host, in threads that add a quarter of a megabyte.
_ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}
# Blocks of 128 KiB take pages of their own, as they do until the C library has seen a larger one freed.
_OWN_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(2**17)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFigures:
    """What a model takes in a process of its own."""

    growth_bytes: int | None
    """The most that runs added to resident memory, all that was there before and code apart; None where unknown."""
    seconds: float
    """The median of a run."""
    resident_bytes: int | None
    """The most that the process had resident while they ran; None where unknown."""
    digest: str
    """A hash of the results."""
    arena_bytes: int | None = None
    """The arena of a planned session."""
    reserved_bytes: int | None = None
    """That, and the results outside of it: what runs of a planned session need."""
    fallbacks: int = 0
    """Runs of a planned session that went on by ordinary allocation."""
    addresses: str | None = None
    """What a planned session learned, for the metadata of its file."""

    def as_run(
        self,
        by: str,
        *,
        resident_bytes: int | None = None,
        predicted_bytes: int | None = None,
        otherwise_predicted_bytes: int | None = None,
    ) -> RuntimeRun:
        """Return what a report says of it; `by` says what ran it, and how."""
        return RuntimeRun(
            by=by,
            growth_bytes=self.growth_bytes,
            resident_bytes=resident_bytes,
            predicted_bytes=predicted_bytes,
            otherwise_predicted_bytes=otherwise_predicted_bytes,
            seconds=self.seconds,
            arena_bytes=self.arena_bytes,
            fallbacks=self.fallbacks,
        )


def optimize_offline(model: Path, level: str | None, output: Path, dims: Mapping[str, int]) -> str:
    """Write a model as ONNX Runtime would run it; return the level, by default the highest that keeps all bits.

    Raises UsageError for an unknown level, UnsupportedError for a model that ONNX Runtime does not load.
    """
    if level is not None and level not in LEVELS:
        raise UsageError(unknown("level of ONNX Runtime", level, LEVELS))
    answer = _ask({"do": "optimize", "model": str(model), "level": level, "output": str(output), "dims": dict(dims)})
    return answer["level"]


def equal_in_child(model: Path, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Run a model on random inputs, nothing of it optimized, and return which pairs of its outputs have equal bits.

    Raises UnsupportedError for a model that ONNX Runtime does not load or run.
    """
    return _ask({"do": "compare", "model": str(model), "pairs": list(pairs)})["equal"]


def measure_in_child(
    model: Path,
    dims: Mapping[str, int],
    *,
    planned: bool,
    level: str = "all",
    runs: int = 10,
    threads: int = 0,
    options: Mapping[str, Any] | None = None,
    arena_grows_as_asked: bool = False,
    as_it_comes: bool = False,
    own_pages: bool = False,
) -> RuntimeFigures:
    """Run a model in a process of its own: in a planned session, or in the stock runtime at a level.

    `threads` of 0 are as many as the machine has, `options` are attributes of the runtime's SessionOptions. With
    `arena_grows_as_asked` the stock arena is extended by what is asked for and not to the next power of two. With
    `as_it_comes` pages of code become resident as they run and count like all others. With `own_pages` the C library
    keeps none of what large blocks leave behind, so that growth is the runtime's own. Raises UnsupportedError for a
    model that ONNX Runtime does not load or run.
    """
    request = {
        "do": "measure",
        "model": str(model),
        "dims": dict(dims),
        "session": "planned" if planned else "stock",
        "level": level,
        "runs": runs,
        "threads": threads,
        "options": options or {},
        "arena_grows_as_asked": arena_grows_as_asked,
        "as_it_comes": as_it_comes,
    }
    return RuntimeFigures(**_ask(request, _OWN_PAGES if own_pages else {}))


def _ask(request: Mapping[str, Any], environment: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-m", _CHILD],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=_MOST_SECONDS,
            check=False,
            env={**os.environ, **_ENVIRONMENT, **environment},
        )
    except subprocess.TimeoutExpired:
        raise UnsupportedError("ONNX Runtime did not come to an end within an hour; leave out --level") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        reason = f"it ended with code {done.returncode} and said {one_line(Exception(done.stderr[-300:]))}"
        raise UnsupportedError(f"ONNX Runtime broke down over the model: {reason}") from None
    if "refusal" in answer:  # in words of lowtide's own
        raise UnsupportedError(answer["refusal"])
    if "error" in answer:
        raise UnsupportedError(f"ONNX Runtime cannot load or run the model: {one_line(Exception(answer['error']))}")
    return answer
