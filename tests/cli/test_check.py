"""`lowtide check` and `lowtide diff`: limits are held, and what broke one is named."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lowtide.engine.graph import Graph, write_graph_file
from tests.cli.conftest import Command
from tests.reporting.page.test_page import layers

ROOT = Path(__file__).parents[2]


def _file(folder: Path, name: str, graph: Graph) -> Path:
    path = folder / f"{name}.graph.json"
    write_graph_file(graph, path)
    return path


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Eight layers, each kept to the end: 9 MiB and 4 bytes."""
    return _file(tmp_path, "base", layers(8))


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """Two layers more."""
    return _file(tmp_path, "grown", layers(10))


def test_limits_that_hold_exit_with_zero(lowtide: Command, base: Path) -> None:
    done = lowtide(
        "check", base, "--max-peak", "9.1MiB", "--max-arena", "9.1MiB", "--against", base, "--max-growth", "0%"
    )
    assert (done.code, done.complaints) == (0, [])
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["ok   layers"] * 3


def test_a_grown_model_fails_and_the_layers_that_grew_are_named(lowtide: Command, base: Path, grown: Path) -> None:
    done = lowtide("check", grown, "--against", base, "--max-growth", "1%")
    assert done.code == 1
    assert "peak of device 11.0 MiB is 1.9 MiB over the limit of 9.1 MiB (max-growth)" in " ".join(done.stdout.split())
    assert "relu x 8 -> x 10: 8.0 MiB -> 10.0 MiB (+2.0 MiB)" in done.stdout


def test_a_broken_limit_names_what_holds_the_memory(lowtide: Command, base: Path) -> None:
    done = lowtide("check", base, "--max-peak", "8MiB", "--json")
    found = json.loads(done.stdout)
    assert done.code == 1
    assert found["ok"] is False
    assert found["checks"][0]["findings"] == [
        {
            "rule": "max-peak",
            "space": "device",
            "ok": False,
            "bytes": 9 * 2**20 + 4,
            "limit_bytes": 8 * 2**20,
            "why": ["relu x 8 holds 8.0 MiB", "x holds 1.0 MiB", "loss holds 4 B"],
        }
    ]


def test_a_total_counts_persistent_bytes_and_a_plan_may_be_what_is_checked(lowtide: Command, graph_file: Path) -> None:
    assert lowtide("check", graph_file, "--max-total", "7210B").code == 0
    assert lowtide("check", graph_file, "--max-total", "7209B").code == 1
    assert lowtide("check", graph_file, "--max-peak", "1211B").code == 1
    assert lowtide("check", graph_file, "--max-peak", "1211B", "--planned").code == 0


def test_every_output_format_says_the_same(lowtide: Command, base: Path) -> None:
    arguments = ("check", base, "--max-peak", "8MiB", "--max-total", "1GiB", "--output-format")
    github = lowtide(*arguments, "github").stdout.splitlines()
    assert [line.partition(" ")[0] for line in github] == ["::error", "::notice"]
    suite = ElementTree.fromstring(lowtide(*arguments, "junit").stdout)[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    run = json.loads(lowtide(*arguments, "sarif").stdout)["runs"][0]
    assert [result["ruleId"] for result in run["results"]] == ["max-peak"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["max-peak", "max-total"]
    assert github[0].partition("::layers: ")[2] in run["results"][0]["message"]["text"]


def test_the_checks_of_a_project_are_made_without_a_model(
    lowtide: Command, base: Path, grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        f'[[tool.lowtide.check]]\nmodel = "{base.name}"\nmax-peak = "10MiB"\n'
        f'[[tool.lowtide.check]]\nmodel = "{grown.name}"\nagainst = "{base.name}"\nmax-growth = "5%"\n'
    )
    done = lowtide("check")
    assert done.code == 1
    assert [line[:4] for line in done.stdout.splitlines() if not line.startswith(" ")] == ["ok  ", "FAIL"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 2),
        ("[tool.lowtide]\ncheck = 1", 2),
        ("[[tool.lowtide.check]]\nmax-peak = '1'", 3),
        ("[[tool.lowtide.check]]\nmodel = 'm'\nmax-peek = '1'", 3),
        ("[[tool.lowtide.check]]\nmodel = 'm'\nmax-peak = [1]", 3),
        ("[[tool.lowtide.check]]\nmodel = 'm'\nplanned = 1", 3),
        ("[[tool.lowtide.check]]\nmodel = 'm'\ndim = 3", 3),
        ("[[tool.lowtide", 3),
    ],
)
def test_a_project_that_asks_for_no_check_is_refused_in_one_line(
    lowtide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(text)
    done = lowtide("check")
    assert (done.code, len(done.complaints)) == (code, 1)


def test_contradicting_limits_are_refused(lowtide: Command, base: Path) -> None:
    assert lowtide("check", base).code == 2
    assert lowtide("check", base, "--max-growth", "1%").code == 2
    assert lowtide("check", base, "--against", base, "--max-peak", "1B").code == 2
    assert lowtide("check", base, "--max-growth", "-1%", "--against", base).code == 2
    assert lowtide("check", "--max-peak", "1B").code == 2


def test_a_difference_adds_up_to_the_change_of_the_peak(lowtide: Command, base: Path, grown: Path) -> None:
    found = json.loads(lowtide("diff", base, grown, "--json").stdout)
    growth = found["after_peak_bytes"]["device"] - found["before_peak_bytes"]["device"]
    assert sum(row["after_bytes"] - row["before_bytes"] for row in found["held"]) == growth == 2 * 2**20
    assert found["new_ops"] == ["relu_8", "relu_9"]
    assert found["gone_ops"] == []
    text = lowtide("diff", base, grown).stdout
    assert "Ops: 2 new (relu_8, relu_9), none gone" in text
    assert "relu x 8 -> x 10: 8.0 MiB -> 10.0 MiB (+2.0 MiB)" in text
    assert json.loads(lowtide("diff", base, base, "--json").stdout)["held"] == []


def test_two_plans_of_one_model_are_compared(lowtide: Command, graph_file: Path, tmp_path: Path) -> None:
    given, best = tmp_path / "given.plan.json", tmp_path / "best.plan.json"
    assert lowtide("plan", graph_file, "-o", given, "--scheduler", "given").code == 0
    assert lowtide("plan", graph_file, "-o", best).code == 0
    done = lowtide("diff", graph_file, graph_file, "--plan-a", given, "--plan-b", best, "--json")
    found = json.loads(done.stdout)
    assert (found["before_peak_bytes"], found["after_peak_bytes"]) == ({"device": 2210}, {"device": 1211})
    assert found["moved_addresses"] > 0


def _action() -> list[dict[str, str]]:
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"]


@pytest.mark.parametrize(("limit", "code"), [("9.1MiB", 0), ("8MiB", 1)])
def test_the_step_of_the_action_checks_and_annotates(base: Path, limit: str, code: int) -> None:
    step = _action()[1]
    empty = dict.fromkeys(step["env"], "")
    own = {"MODEL": str(base), "MAX_PEAK": limit, "PLANNED": "false"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        env={**os.environ, **empty, **own, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stdout.startswith("::notice" if code == 0 else "::error title=lowtide max-peak::layers: ")


@pytest.mark.parametrize(("limit", "code"), [("9.1MiB", 0), ("8MiB", 1)])
def test_the_hook_makes_the_checks_of_the_project_without_file_names(base: Path, limit: str, code: int) -> None:
    yaml = pytest.importorskip("yaml")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["pass_filenames"] is False
    (base.parent / "pyproject.toml").write_text(
        f'[[tool.lowtide.check]]\nmodel = "{base.name}"\nmax-peak = "{limit}"\n'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    entry = shlex.split(hook["entry"])  # as pre-commit runs it, in the folder of the repository
    done = subprocess.run(
        entry, cwd=base.parent, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "FAIL layers" in done.stdout) == (code, code == 1)


MARKED = """
import pytest
from lowtide import GraphBuilder, Lifetime

def program(n):
    builder = GraphBuilder("program")
    x = builder.add_buffer("x", 100, Lifetime.INPUT)
    builder.add_op("grow", "grow", reads=[x], writes=[builder.add_buffer("out", n, Lifetime.OUTPUT)])
    return builder.build()

@pytest.fixture
def size():
    return 900

@pytest.mark.lowtide(max_peak="1000B")
def test_fits(size):
    return program(size)

@pytest.mark.lowtide(max_peak="999B")
def test_does_not_fit(size):
    return program(size)

@pytest.mark.lowtide(max_peak="1B")
def test_returns_nothing():
    pass

@pytest.mark.lowtide(most=1)
def test_has_an_unknown_limit():
    return program(1)
"""


def test_the_pytest_plug_in_holds_programs_to_the_limits_of_their_marks(tmp_path: Path) -> None:
    (tmp_path / "test_memory.py").write_text(MARKED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", str(tmp_path)]
    if "lowtide.cli.pytest_plugin" not in sys.modules:
        command[4:4] = ["-p", "lowtide.cli.pytest_plugin"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "3 failed, 1 passed" in done.stdout
    assert (
        "FAIL program: peak of device 1,000 B is 1 B over the limit of 999 B (max-peak); out holds 900 B" in done.stdout
    )
    assert "a test with the mark lowtide returns the program" in done.stdout
    assert "the mark lowtide takes max_peak" in done.stdout
    assert "Error" not in done.stdout
