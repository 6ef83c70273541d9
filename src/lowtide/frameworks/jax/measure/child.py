"""Run by a process of its own: how much resident memory one call of a compiled function adds at its peak."""

import ctypes
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.frameworks.jax.internals import block_until_ready, deserialize, is_random_key, jit, numpy, random

_STATUS = Path("/proc/self/status")
_TRIES, _SECONDS = 100, 0.05


def main() -> None:
    """Read an exported function from the file named first, and print the bytes that its call adds, as JSON."""
    path, options = sys.argv[1], json.loads(sys.argv[2])
    exported = deserialize(Path(path).read_bytes())
    arguments = [_made_up(aval, place) for place, aval in enumerate(exported.in_avals)]
    compiled = jit(exported.call).lower(*arguments).compile(compiler_options=options or None)
    block_until_ready(arguments)
    first = _added(compiled, arguments)
    again = _added(compiled, arguments) if _is_given_back(first) else first
    json.dump({"added_bytes": again}, sys.stdout)


def _added(compiled: Any, arguments: Sequence[Any]) -> int:
    """Return by how much a call raises resident memory; threads and kernels come with a first one, and stay."""
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    block_until_ready(compiled(*arguments))
    return max(0, _resident("VmHWM") - before)


def _is_given_back(added_bytes: int) -> bool:
    """Let the C library return what is free to the system, and wait until most of what a call added has gone."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    held, last = _resident("VmHWM") - added_bytes // 2, sys.maxsize
    for _ in range(_TRIES):
        if trim is not None:
            trim(0)
        now = _resident("VmRSS")
        if now <= held and now >= last:
            return True
        last = now
        time.sleep(_SECONDS)  # XLA frees temporaries from threads of its own
    return False


def _resident(name: str) -> int:
    found = re.search(rf"{name}:\s*(\d+) kB", _STATUS.read_text())
    return int(found[1]) * 1024 if found else 0


def _made_up(aval: Any, place: int) -> Any:
    if is_random_key(aval.dtype):
        return random.split(random.key(place), aval.shape) if aval.shape else random.key(place)
    return numpy.asarray(np.random.default_rng(place).uniform(0.0, 1.0, aval.shape)).astype(aval.dtype)


if __name__ == "__main__":
    main()
