"""The peak of the real allocator: one call of a function in a process of its own."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.jax.internals import export, jit

_CHILD = "lowtide.frameworks.jax.measure.child"
_SECONDS = 600


def added_resident_bytes(flat: Callable[..., Sequence[Any]], structs: Sequence[Any], options: Mapping[str, str]) -> int:
    """Return by how much one call raises the resident memory of a process, results included and arguments not.

    The function is exported, compiled there with the same options, and called once on made-up values. Resident memory
    is counted in pages, and XLA's own threads and kernels are in it. Raises UnsupportedError where the function cannot
    be exported, needs several devices, or the system is not Linux.
    """
    if not Path("/proc/self/clear_refs").exists():
        raise UnsupportedError("resident memory is measured on Linux only; leave out resident=True")
    try:
        exported = export(jit(flat))(*structs)
        if exported.nr_devices != 1:
            raise UnsupportedError("resident memory is measured on one device only; leave out resident=True")
        serialized = exported.serialize()
    except UnsupportedError:
        raise
    except Exception as error:  # whatever JAX raises for what it cannot export
        raise UnsupportedError(f"the function cannot be exported to a process of its own: {one_line(error)}") from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "function"
        path.write_bytes(serialized)
        command = [sys.executable, "-m", _CHILD, str(path), json.dumps(dict(options))]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
    if run.returncode:
        raise UnsupportedError(f"the process that measures failed: {one_line(RuntimeError(run.stderr[-400:]))}")
    return int(json.loads(run.stdout)["added_bytes"])
