"""Resident memory added by one call, measured in a separate process, which runs this module."""

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.jax.internals import export, is_random_key, jax, key_like
from lowtide.frameworks.resident import status_bytes

_MODULE = "lowtide.frameworks.jax.measure.resident"
_TIMEOUT_S = 600
_CLEAR_REFS = Path("/proc/self/clear_refs")
_TRIES, _PAUSE_S = 100, 0.05


def added_resident_bytes(flat: Callable[..., Sequence[Any]], structs: Sequence[Any], options: Mapping[str, str]) -> int:
    """Return how much one call raises the resident memory of a process, with results and without arguments.

    Raises UnsupportedError if the function cannot be exported or needs several devices, or if the system is not Linux.
    """
    if not _CLEAR_REFS.exists():
        raise UnsupportedError("resident memory is measured on Linux only; leave out resident=True")
    try:
        exported = export.export(jax.jit(flat))(*structs)
        if exported.nr_devices != 1:
            raise UnsupportedError("resident memory is measured on one device only; leave out resident=True")
        serialized = exported.serialize()
    except UnsupportedError:
        raise
    except Exception as error:  # JAX may raise anything
        raise UnsupportedError(f"the function cannot be exported to a separate process: {one_line(error)}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "function"
        path.write_bytes(serialized)
        command = [sys.executable, "-m", _MODULE, str(path), json.dumps(dict(options))]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if run.returncode:
        raise UnsupportedError(f"the measuring process failed: {one_line(RuntimeError(run.stderr[-400:]))}")
    return int(json.loads(run.stdout)["added_bytes"])


def made_up(aval: Any, seed: int) -> Any:
    if is_random_key(aval.dtype):
        return jax.random.split(key_like(aval.dtype, seed), aval.shape)
    return jax.numpy.asarray(np.random.default_rng(seed).uniform(0.0, 1.0, aval.shape)).astype(aval.dtype)


def main() -> None:
    path, options = sys.argv[1], json.loads(sys.argv[2])
    exported = export.deserialize(Path(path).read_bytes())
    arguments = [made_up(aval, place) for place, aval in enumerate(exported.in_avals)]
    compiled = jax.jit(exported.call).lower(*arguments).compile(compiler_options=options or None)
    jax.block_until_ready(arguments)
    first = _added_by_call(compiled, arguments)  # includes threads and kernels, which stay
    again = _added_by_call(compiled, arguments) if _is_returned(first) else first
    json.dump({"added_bytes": again}, sys.stdout)


def _added_by_call(compiled: Any, arguments: Sequence[Any]) -> int:
    before = status_bytes("VmRSS") or 0
    _CLEAR_REFS.write_text("5")  # resets the high-water mark
    jax.block_until_ready(compiled(*arguments))
    return max(0, (status_bytes("VmHWM") or 0) - before)


def _is_returned(added_bytes: int) -> bool:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    expected, last = (status_bytes("VmHWM") or 0) - added_bytes // 2, sys.maxsize
    for _ in range(_TRIES):
        if trim is not None:
            trim(0)
        now = status_bytes("VmRSS") or 0
        if now <= expected and now >= last:
            return True
        last = now
        time.sleep(_PAUSE_S)  # XLA frees temporaries in its own threads
    return False


if __name__ == "__main__":
    main()
