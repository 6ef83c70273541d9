"""google/minimalloc as a program: its own build, run on a file."""

import csv
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from packing_peers.placed import Ints

PUBLISHED_SECONDS = 38.0
"""For A to E together at capacity 1,048,576, measured elsewhere; stated where no build is at hand."""


def minimalloc(program: Path, buffers: Path, capacity: int, *, limit_seconds: float) -> tuple[Ints | None, float]:
    """Return offsets in the file's order, or None when it found none in time, and the seconds the program reports."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "placed.csv"
        options = [f"--capacity={capacity}", f"--timeout={limit_seconds:.0f}s", f"--input={buffers}"]
        done = subprocess.run([program, *options, f"--output={output}"], capture_output=True, text=True, check=False)
        seconds = float(re.findall(r"[0-9.]+", done.stderr)[0])  # "4.5" or, in later versions, "Elapsed time 4.5s"
        if done.returncode:
            return None, seconds
        with output.open(newline="") as file:
            return np.array([int(row["offset"]) for row in csv.DictReader(file)]), seconds
