"""Benchmark rows in processes of their own that compile side by side and are measured one at a time."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_COMPILED = "compiled"


@dataclass(frozen=True)
class RowCommand:
    """A command that prints a row as JSON in its last line, and the file that keeps the row."""

    arguments: Sequence[str]
    file: Path
    environment: Mapping[str, str]


class _RowProcess:
    def __init__(self, command: RowCommand, limit_seconds: float) -> None:
        self.command = command
        self.errors = command.file.with_suffix(".err").open("w+")
        self.cache = tempfile.TemporaryDirectory()  # so that the first call compiles everything
        self.process = subprocess.Popen(
            [sys.executable, *command.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": self.cache.name, **command.environment},
        )
        self.timer = threading.Timer(limit_seconds, self.process.kill)
        self.timer.start()

    def wait_until_compiled(self) -> None:
        """Return when the process waits for its turn or has ended."""
        for line in self.process.stdout or ():
            if line.strip() == _COMPILED:
                break
        self.timer.cancel()

    def measure(self) -> None:
        """Let the process measure, and keep its row, or the last line of its error."""
        output, _ = self.process.communicate("\n")
        row = output.strip().splitlines()[-1:]
        if self.process.returncode or not row:
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines() or [f"exit code {self.process.returncode}"]
            row = [json.dumps({"error": lines[-1][:120]})]
        self.command.file.write_text(row[0])
        self.errors.close()
        self.cache.cleanup()


def wait_for_turn() -> None:
    """Report that this process has compiled, and return when no other process uses the device."""
    print(_COMPILED, flush=True)
    sys.stdin.readline()


def measure_rows(commands: Sequence[RowCommand], workers: int, limit_seconds: float = 3600.0) -> None:
    """Run the commands whose files do not exist, `workers` at a time; each has a limit to compile."""
    lacking = [each for each in commands if not each.file.exists()]
    for first in range(0, len(lacking), workers):
        started = [_RowProcess(each, limit_seconds) for each in lacking[first : first + workers]]
        with ThreadPoolExecutor(workers) as threads:
            list(threads.map(_RowProcess.wait_until_compiled, started))
        for each in started:
            each.measure()
