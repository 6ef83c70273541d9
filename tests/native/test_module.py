"""The module of the kernels is quiet at the end of a process."""

import subprocess
import sys

_CODE = """
import ctypes
from lowtide.engine.packing import Buffers
from lowtide.engine.packing.items import items_of
native = items_of(Buffers([0], [1], [1])).items.native()
ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))
"""


def test_objects_that_live_until_the_process_ends_print_nothing() -> None:
    """PyTorch keeps compiled programs, and with them plans, until the end."""
    run = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert run.stdout + run.stderr == ""
