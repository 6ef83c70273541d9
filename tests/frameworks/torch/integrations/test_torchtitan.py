"""torchtitan's Llama debug model with the setting `compile.backend="lowtide"`, on one process and on two."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchtitan", reason="needs torchtitan 0.2.2")

SCRIPT = Path(__file__).parent / "titan.py"


def _trained(folder: Path, ranks: int, backend: str) -> dict[str, Any]:
    output = folder / f"{backend}.json"
    launcher = [] if ranks == 1 else ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command = [sys.executable, "-W", "ignore", *launcher, str(SCRIPT), backend, "60%", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(output.read_text("utf-8"))


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_debug_model_trains_within_a_budget_with_equal_losses(ranks: int, tmp_path: Path) -> None:
    """Each block is one graph. Two ranks shard the weights by FSDP2 over gloo."""
    plain, planned = (_trained(tmp_path, ranks, backend) for backend in ("none", "lowtide"))
    assert planned["losses"] == plain["losses"]
    assert planned["peak"] < plain["peak"]
    assert "forward" in planned["explained"]
