"""What only POSIX systems have is needed for nothing that runs everywhere."""

import json
import subprocess
import sys
from pathlib import Path

from tests.scripts import load_script

WITHOUT = """
import os, runpy, signal, sys
for name in ("resource", "fcntl", "pwd", "grp", "termios", "pty"):
    sys.modules[name] = None
for name in ("O_NONBLOCK", "fork", "forkpty", "getuid", "geteuid", "fchmod", "sched_getaffinity"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "setitimer", "pthread_sigmask"):
    delattr(signal, name)
sys.argv[0] = "lowtide"
runpy.run_module("lowtide", run_name="__main__")
"""


def test_the_command_line_runs_without_what_windows_lacks(tmp_path: Path) -> None:
    model = tmp_path / "small.graph.json"
    model.write_text(json.dumps(load_script("try_installed").GRAPH), encoding="utf-8")
    for arguments in (
        ["plan", model, "-o", tmp_path / "small.plan.json.gz"],
        ["verify", tmp_path / "small.plan.json.gz", model],
    ):
        done = subprocess.run([sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
