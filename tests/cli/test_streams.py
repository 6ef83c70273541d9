"""stdout is for the result alone, stderr for progress; color only where it is wanted."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.oracles.plugin import install_scheduler, module_path

SLOW = "import time\ntime.sleep(1.3)\nreturn problem.given_order()"
COLOR = re.compile(r"\x1b\[[0-9;]*m")


def test_what_the_program_prints_goes_to_stderr(lowtide: Command, programs: str, tmp_path: Path) -> None:
    for arguments in (["inspect"], ["compare"], ["plan", "-o", tmp_path / "p.plan.json"], ["optimize", "--measure"]):
        done = lowtide(*arguments, f"{programs}:infer", "--json")
        assert done.code == 0
        json.loads(done.stdout)
        assert "a program may print while it is read" in done.stderr


def test_anything_over_a_second_is_told_on_stderr_and_nothing_else(
    lowtide_process: Command, graph_file: Path, tmp_path: Path
) -> None:
    install_scheduler(tmp_path, "slow", SLOW)
    slow = lowtide_process("plan", graph_file, "--json", PYTHONPATH=module_path(tmp_path))
    quick = lowtide_process("plan", graph_file, "--json")
    assert slow.stderr == "lowtide: ordering the ops ...\n"
    assert quick.stderr == ""
    assert json.loads(slow.stdout)["peak_bytes"] == json.loads(quick.stdout)["peak_bytes"]


@pytest.mark.parametrize("no_color", ["", "1"])
def test_no_color_is_honored_on_a_terminal(graph_file: Path, tmp_path: Path, no_color: str) -> None:
    """The bar is the only thing with color."""
    install_scheduler(tmp_path, "slow", SLOW.replace("1.3", "2.6"))
    controller, terminal = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": module_path(tmp_path), "TERM": "xterm-256color", "NO_COLOR": no_color}
    command = [str(Path(sys.executable).with_name("lowtide")), "plan", str(graph_file), "--scheduler", "slow"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=terminal, text=True, check=False)
    os.close(terminal)
    shown = os.read(controller, 10**5).decode()
    os.close(controller)
    assert done.returncode == 0
    assert "ordering the ops" in shown
    assert "Traceback" not in shown
    assert bool(COLOR.search(shown)) == (not no_color)
    assert "\x1b" not in done.stdout


def test_names_are_printed_harmlessly_whatever_they_hold_and_whatever_the_terminal_can_show(
    lowtide_process: Command, graph_file: Path
) -> None:
    content = json.loads(graph_file.read_text())
    content["name"] = "evil \x1b[2J name\nof two lines"
    content["ops"][1]["name"] = "gr\u00f6\u00dfer \x1b[31m"
    graph_file.write_text(json.dumps(content))
    for verb in ("inspect", "compare", "plan"):
        done = lowtide_process(verb, graph_file, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert done.code == 0, done.stderr
        assert "\x1b" not in done.stdout
        assert done.stdout.splitlines()[0].startswith(r"evil \x1b[2J name\nof two lines: ")
        as_json = lowtide_process(verb, graph_file, "--json", PYTHONIOENCODING="utf-8")
        assert json.loads(as_json.stdout).get("name", content["name"]) == content["name"]


def test_a_reader_that_goes_away_early_causes_no_traceback(graph_file: Path) -> None:
    command = [str(Path(sys.executable).with_name("lowtide")), "compare", str(graph_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_full_disk_under_the_result_is_one_line(graph_file: Path) -> None:
    command = [str(Path(sys.executable).with_name("lowtide")), "inspect", str(graph_file)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "lowtide: cannot write the result: No space left on device\n")


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["--version"]])
def test_help_and_version_are_results(lowtide: Command, arguments: list[str]) -> None:
    done = lowtide(*arguments)
    assert (done.code, done.stderr) == (0, "")
    assert "lowtide" in done.stdout
