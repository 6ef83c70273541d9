"""Ctrl-C while packing: the best packing so far is written, and said to be interrupted."""

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lowtide.engine.packing.csv_file import read_buffer_file
from lowtide.engine.packing.validate import validate

HARD = Path(__file__).parents[1] / "data/buffers/cut_1015.csv"


@pytest.mark.usefixtures("ctrl_c_heeded")
def test_ctrl_c_while_packing_writes_the_best_packing_so_far_marked_interrupted(tmp_path: Path) -> None:
    """The least arena of this instance is not found soon, so that the search is long."""
    out, svg = tmp_path / "out.csv", tmp_path / "out.svg"
    command = [str(Path(sys.executable).with_name("lowtide")), "pack", str(HARD), "--effort", "max", "--json"]
    with subprocess.Popen(
        [*command, "-o", str(out), "--svg", str(svg)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("lowtide: ")  # progress, once a second has passed
        process.send_signal(signal.SIGINT)
        try:
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "Traceback" not in stderr
    fields = json.loads(stdout)
    assert (fields["status"], fields["optimal"]) == ("interrupted", False)
    assert "interrupted" in svg.read_text()
    with out.open(newline="") as file:
        offsets = np.array([int(row["offset"]) for row in csv.DictReader(file)])
    validate(read_buffer_file(HARD).buffers, offsets, fields["arena_bytes"])
