"""The same input gives the same bytes: twice in one process, and in processes with different hash seeds."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.graph import write_graph_file
from lowtide.engine.plan import write_plan_file
from tests.examples import examples
from tests.oracles.plans import plan_of
from tests.oracles.plugin import module_path
from tests.strategies import random_graph

_ROOT = Path(__file__).parents[2]
_SCRIPT = """
import sys
from pathlib import Path
from tests.properties.test_determinism import digest
print(digest(7, Path(sys.argv[1])), digest(8, Path(sys.argv[1])))
"""


def digest(seed: int, folder: Path) -> str:
    """Build, plan, pack and write a graph; returns a hash over the bytes of both files."""
    graph = random_graph(seed, n_ops=300)
    write_graph_file(graph, folder / "g.graph.json.gz")
    write_plan_file(plan_of(graph, range(graph.n_ops)), folder / "p.plan.json.gz", graph)
    content = (folder / "g.graph.json.gz").read_bytes() + (folder / "p.plan.json.gz").read_bytes()
    return hashlib.sha256(content).hexdigest()


@examples(20)
@given(st.integers(0, 10**6))
def test_building_planning_and_writing_twice_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    assert digest(seed, folder) == digest(seed, folder)


def test_processes_with_different_hash_seeds_write_the_same_bytes(tmp_path: Path) -> None:
    results: set[str] = set()
    for hash_seed in ("0", "1", "424242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": module_path(_ROOT)}
        run = subprocess.run(
            [sys.executable, "-c", _SCRIPT, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
        )
        results.add(run.stdout)
    assert results == {f"{digest(7, tmp_path)} {digest(8, tmp_path)}\n"}
