"""XLA's reserved bytes and the modeled peak: exact figures, differences that add up."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner

from lowtide.cli.compare import command
from lowtide.core.errors import MalformedInputError, UsageError
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.xla.load import load_module, read_content
from lowtide.xla import XlaModel, against_assignment
from tests.frameworks.xla.modules import FOLDER, name_of

PROTOS = sorted(FOLDER.glob("*.pb"))
TEMPORARY_BYTES = {"conditional": 4228, "nested": 1120, "rotate": 3140, "scan": 32992, "swap": 2116, "train": 409600}
"""`memory_analysis().temp_size_in_bytes` of the recorded modules."""


@pytest.mark.parametrize("path", PROTOS, ids=name_of)
def test_temporary_bytes_are_those_of_memory_analysis(path: Path) -> None:
    assert against_assignment(path).temporary_bytes == TEMPORARY_BYTES[path.stem]


@pytest.mark.parametrize("path", PROTOS, ids=name_of)
def test_the_differences_add_up_and_are_positive(path: Path) -> None:
    reserved = against_assignment(path)
    assert sum(one.extra_bytes for one in reserved.differences) == reserved.reserved_bytes - reserved.peak_bytes
    assert all(one.extra_bytes > 0 for one in reserved.differences)
    given = make_candidate("given", XlaModel(path).graph, in_place=True).plan
    assert reserved.peak_bytes == given.peak_bytes["device"]


def test_a_compiled_executable_is_compared_with_the_model() -> None:
    compiled = jax.jit(lambda x: jnp.sin(x) @ x).lower(jax.ShapeDtypeStruct((16, 16), jnp.float32)).compile()
    for source in (compiled, compiled.runtime_executable()):
        reserved = against_assignment(source)
        assert reserved.temporary_bytes == compiled.memory_analysis().temp_size_in_bytes
        assert reserved.peak_bytes == 3 * 16 * 16 * 4


def test_a_module_without_an_assignment_raises() -> None:
    with pytest.raises(UsageError, match="compiled executable"):
        against_assignment(FOLDER / "scan.hlo")


_DUMPED = """
import jax, jax.numpy as jnp
def loop(w, x):
    def turn(x, _):
        x = jnp.tanh(x @ w)
        return x, x.sum(0)
    return jax.lax.scan(turn, x, None, length=5)
jax.jit(jax.value_and_grad(lambda w, x: loop(w, x)[1].sum())).lower(*[jnp.ones((16, 16))] * 2).compile()
"""


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The dumped text of a module with a loop, next to its proto and the text of its assignment."""
    folder = tmp_path_factory.mktemp("dump")
    flags = {"XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_as_proto"}
    subprocess.run([sys.executable, "-c", _DUMPED], check=True, env={**os.environ, **flags}, capture_output=True)
    return max(folder.glob("*after_optimizations.txt"), key=lambda path: path.stat().st_size)


def test_an_assignment_dumped_as_text_equals_that_of_the_proto(dumped: Path) -> None:
    assert load_module(dumped).allocations == load_module(dumped.with_suffix(".hlo.pb")).allocations
    assert against_assignment(dumped) == against_assignment(dumped.with_suffix(".hlo.pb"))


@pytest.mark.parametrize("line", ["allocation 3: size", " value: <12 x", ""])
def test_a_damaged_text_of_an_assignment_raises_one_line(dumped: Path, tmp_path: Path, line: str) -> None:
    module = tmp_path / "module.txt"
    module.write_bytes(dumped.read_bytes())
    (tmp_path / "module-buffer-assignment.txt").write_text(f"BufferAssignment:\n{line}\n")
    with pytest.raises(MalformedInputError, match="cut off") as refused:
        XlaModel(module)
    assert "\n" not in str(refused.value)


def test_a_truncated_assignment_raises() -> None:
    content = (FOLDER / "scan.pb").read_bytes()
    size = int.from_bytes(bytes([content[1] & 127]), "little") | content[2] << 7
    module = content[: 3 + size]
    with pytest.raises(MalformedInputError, match="no allocations"):
        read_content(module + b"\x1a\x02\x0a\x00", "cut.pb")


def test_compare_shows_reserved_bytes_and_differences() -> None:
    path = str(FOLDER / "scan.pb")
    shown = CliRunner().invoke(command, [path])
    assert "XLA's buffer assignment: 80.3 KiB reserved, temporaries 32.2 KiB" in shown.stdout
    reserved = json.loads(CliRunner().invoke(command, [path, "--json"]).stdout)["reserved"]
    assert reserved["reserved_bytes"] - reserved["peak_bytes"] == sum(
        difference["extra_bytes"] for difference in reserved["differences"]
    )
    assert "reserved" not in json.loads(CliRunner().invoke(command, [str(FOLDER / "scan.hlo"), "--json"]).stdout)
