"""HiGHS prints nothing, and the output of the program before and after it is kept."""

import subprocess
import sys

import pytest

pytest.importorskip("highspy")

_CODE = """
import ctypes
from lowtide.engine.recompute import quiet_solver
print("before", flush=True)
with quiet_solver._discarded_output():
    ctypes.CDLL(None).puts(b"banner")
quiet_solver.new_solver().run()
print("after")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="CDLL(None) is of POSIX")
def test_output_is_discarded_only_while_the_first_solver_is_made() -> None:
    run = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert run.stdout == "before\nafter\n"


def test_solvers_run_without_a_standard_output() -> None:
    code = "import os; os.close(1)\nfrom lowtide.engine.recompute.quiet_solver import new_solver; new_solver().run()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode in (0, 120)  # 120: exit cannot flush
