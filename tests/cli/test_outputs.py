"""Outputs never replace one another or what is read, and a result that cannot be written is not lost."""

import json
from pathlib import Path

import pytest

from lowtide import read_graph_file, read_plan_file
from lowtide.core.errors import WriteError
from tests.cli.conftest import Command
from tests.cli.test_bad_input import USAGE, assert_refused
from tests.oracles.plugin import install_scheduler, module_path


@pytest.fixture
def names(graph_file: Path, tmp_path: Path) -> dict[str, Path]:
    """Several names of one file: plain, by a link, by a hard link, by a way around."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.graph.json").symlink_to(graph_file)
    (tmp_path / "hard.graph.json").hardlink_to(graph_file)
    around = tmp_path / "folder" / ".." / graph_file.name
    return {
        "plain": graph_file,
        "link": tmp_path / "link.graph.json",
        "hard": tmp_path / "hard.graph.json",
        "around": around,
    }


@pytest.mark.parametrize("how", ["plain", "link", "hard", "around"])
def test_an_output_replaces_what_is_read_only_by_force(
    lowtide: Command, graph_file: Path, names: dict[str, Path], how: str
) -> None:
    before = graph_file.read_bytes()
    done = lowtide("optimize", graph_file, "-o", names[how])
    assert_refused(done, USAGE, "-o", "MODEL", "--force")
    assert graph_file.read_bytes() == before
    assert lowtide("optimize", graph_file, "-o", names[how], "--force").code == 0
    assert names[how].read_bytes() != before


def test_no_verb_writes_over_what_it_reads(lowtide: Command, graph_file: Path, tmp_path: Path) -> None:
    plan, buffers = tmp_path / "p.plan.json", tmp_path / "b.csv"
    assert lowtide("plan", graph_file, "-o", plan).code == 0
    buffers.write_text("id,lower,upper,size\na,0,1,4\n")
    costs = tmp_path / "c.plan.json"
    costs.write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for arguments in (
        ["apply", plan, graph_file, "-o", graph_file],
        ["costs", graph_file, "-o", graph_file],
        ["pack", buffers, "-o", buffers],
        ["pack", buffers, "--svg", buffers],
        ["plan", graph_file, "--proof", graph_file],
        ["plan", graph_file, "--costs", costs, "-o", costs],
    ):
        assert_refused(lowtide(*arguments), USAGE, "would replace", "--force")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_two_outputs_are_two_files_forced_or_not(lowtide: Command, graph_file: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.plan.json"
    (tmp_path / "other.plan.json").symlink_to(one)
    for second in (one, tmp_path / "other.plan.json"):
        for options in ([], ["--force"]):
            assert_refused(lowtide("plan", graph_file, "-o", one, "--proof", second, *options), USAGE, "two files")
    assert not one.exists()


@pytest.mark.parametrize(("verb", "name"), [("plan", "p.plan.json.gz"), ("optimize", "applied.graph.json")])
def test_a_plan_that_cannot_be_written_any_more_goes_to_a_second_place(
    lowtide_process: Command, graph_file: Path, tmp_path: Path, verb: str, name: str
) -> None:
    """The folder that it was to go to is removed while the plan is made."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "second").mkdir()
    gone = str(tmp_path / "gone")
    install_scheduler(tmp_path, "remover", f"import os\nos.rmdir({gone!r})\nreturn problem.given_order()")
    arguments = [verb, graph_file, "-o", f"{gone}/{name}", "--scheduler", "remover"]
    if verb == "plan":
        arguments += ["--proof", tmp_path / "p.proof.json"]
    done = lowtide_process(*arguments, PYTHONPATH=module_path(tmp_path), TMPDIR=str(tmp_path / "second"))
    assert_refused(done, WriteError.exit_code, f"cannot write {gone}", " instead")
    assert WriteError.exit_code == 4
    (rescued,) = (path for path in (tmp_path / "second").rglob("*") if path.is_file())
    assert str(rescued) in done.complaints[0]
    read_plan_file(rescued, read_graph_file(graph_file))
    if verb == "plan":
        assert json.loads((tmp_path / "p.proof.json").read_bytes())["lowtide_proof"] == 1
