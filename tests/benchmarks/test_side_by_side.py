"""Rows that compile side by side are measured one at a time, and a slow row ends without the others."""

import json
from pathlib import Path

from tests.benchmarks.conftest import Load

QUICK = """
import json, sys
sys.path.insert(0, {folder!r})
from side_by_side import wait_for_turn
wait_for_turn()
print(json.dumps({{"row": sys.argv[1]}}))
"""
SLOW = "import time; time.sleep(600)"
LIMIT_SECONDS = 3.0


def test_a_row_that_compiles_too_long_does_not_end_the_others(load: Load, tmp_path: Path) -> None:
    module = load("side_by_side")
    folder = str(Path(str(module.__file__)).parent)
    quick, slow = tmp_path / "quick.py", tmp_path / "slow.py"
    quick.write_text(QUICK.format(folder=folder))
    slow.write_text(SLOW)
    files = [tmp_path / f"{number}.json" for number in range(3)]
    lines = [[str(slow)], [str(quick), "first"], [str(quick), "second"]]
    commands = [module.RowCommand(line, file, {}) for line, file in zip(lines, files, strict=True)]
    module.measure_rows(commands, 3, LIMIT_SECONDS)
    found = [json.loads(file.read_text()) for file in files]
    assert "error" in found[0]
    assert found[1:] == [{"row": "first"}, {"row": "second"}]
