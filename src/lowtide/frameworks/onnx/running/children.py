"""Child processes that run models with ONNX Runtime."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from lowtide.core.errors import UnsupportedError, UsageError, one_line, unknown
from lowtide.engine.planning.measured import RuntimeRun
from lowtide.frameworks.onnx.running.levels import LEVELS

_CHILD = "lowtide.frameworks.onnx.running.child"
_MOST_SECONDS = 3600
# Telemetry threads add a quarter of a megabyte.
_ENVIRONMENT = {"ORT_DISABLE_TELEMETRY": "1"}
# Large blocks always get pages of their own.
_OWN_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(2**17)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeFigures:
    """Memory and time of a model's process."""

    growth_bytes: int | None
    """Resident memory added by runs, without code; None if unknown."""
    seconds: float
    """Median of a run."""
    resident_bytes: int | None
    """Of the process; None if unknown."""
    digest: str
    arena_bytes: int | None = None
    """Of a planned session."""
    reserved_bytes: int | None = None
    """Arena and results outside it."""
    fallbacks: int = 0
    """Runs by ordinary allocation."""
    addresses: str | None = None

    def as_run(self, by: str, **more: int | None) -> RuntimeRun:
        figures = {"growth_bytes": self.growth_bytes, "arena_bytes": self.arena_bytes, **more}
        return RuntimeRun(by=by, seconds=self.seconds, fallbacks=self.fallbacks, **figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizedOffline:
    """The level of a model that ONNX Runtime wrote."""

    level: str
    is_faster_here: bool


def optimize_offline(model: Path, level: str | None, output: Path, dims: Mapping[str, int]) -> OptimizedOffline:
    """Write a model as ONNX Runtime runs it; `OnnxModel.optimized` explains levels and errors."""
    if level is not None and level not in LEVELS:
        raise UsageError(unknown("level of ONNX Runtime", level, LEVELS))
    request = {"do": "optimize", "model": str(model), "level": level, "output": str(output), "dims": dict(dims)}
    return OptimizedOffline(**_ask(request))


def equal_in_child(model: Path, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Run a model unoptimized on random inputs; return which output pairs are bit-equal.

    Raises UnsupportedError if ONNX Runtime does not run it.
    """
    return _ask({"do": "compare", "model": str(model), "pairs": list(pairs)})["equal"]


class RunSettings(TypedDict, total=False):
    """How a child process runs a model."""

    level: str
    """Of the stock runtime, by default "all"."""
    runs: int
    """By default 10."""
    threads: int
    """By default 0: all cores."""
    options: Mapping[str, Any]
    arena_grows_as_asked: bool
    """Whether the stock arena does not grow to powers of two."""
    as_it_comes: bool
    """Whether code counts when it becomes resident."""


def measure_in_child(
    model: Path, dims: Mapping[str, int], *, planned: bool, own_pages: bool = False, **settings: Unpack[RunSettings]
) -> RuntimeFigures:
    """Measure a model in a planned session or the stock runtime.

    With `own_pages`, the C library keeps no large freed blocks. Raises UnsupportedError if ONNX Runtime does not run
    it.
    """
    request = {"do": "measure", "model": str(model), "dims": dict(dims), "planned": planned, **settings}
    return RuntimeFigures(**_ask(request, **(_OWN_PAGES if own_pages else {})))


def _ask(request: Mapping[str, Any], **environment: str) -> dict[str, Any]:
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
        raise UnsupportedError("ONNX Runtime did not finish within an hour; leave out --level") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        reason = f"exit code {done.returncode}, {one_line(Exception(done.stderr[-300:]))}"
        raise UnsupportedError(f"ONNX Runtime crashed on the model: {reason}") from None
    if "refusal" in answer:
        raise UnsupportedError(answer["refusal"])
    if "error" in answer:
        raise UnsupportedError(f"ONNX Runtime cannot load or run the model: {one_line(Exception(answer['error']))}")
    return answer
