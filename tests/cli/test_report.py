"""`lowtide report`: a page, a text or an object, of a plan that is made or read."""

import json
from pathlib import Path

from tests.cli.conftest import Command


def test_a_report_of_a_model_is_a_page_and_says_where(lowtide: Command, graph_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = lowtide("report", graph_file, "-o", page)
    assert (done.code, done.complaints) == (0, [])
    assert done.stdout == f"{page}: diamond, 7 buffers; open it in a browser\n"
    assert page.read_text().startswith("<!doctype html>")


def test_a_report_of_a_saved_plan_shows_that_plan(lowtide: Command, graph_file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "diamond.plan.json"
    assert lowtide("plan", graph_file, "-o", plan, "--scheduler", "given").code == 0
    done = lowtide("report", graph_file, "--plan", plan, "--json")
    figures = json.loads(done.stdout)
    assert figures["n_moved"] == 0
    assert json.loads(lowtide("report", graph_file, "--json").stdout)["peak_bytes"] == {"device": 1211}
    assert "nothing is known about the weather" in lowtide("report", graph_file, "--plan", plan, "--text").stdout


def test_a_report_that_goes_nowhere_or_into_no_page_is_refused(lowtide: Command, graph_file: Path) -> None:
    nowhere = lowtide("report", graph_file)
    assert nowhere.code == 2
    assert nowhere.complaints == ["lowtide: no output given; add -o REPORT.html, --text or --json"]
    assert lowtide("report", graph_file, "-o", "report.txt").code == 2


def test_the_curve_of_a_report_is_that_of_plan(lowtide: Command, graph_file: Path) -> None:
    """Whatever the plan beside it is for, and with recomputation, which no budget has to ask for."""
    alone = json.loads(lowtide("plan", graph_file, "--curve", "--json").stdout)
    for more in ((), ("--budget", "90%"), ("--allow", "reorder,share,recompute")):
        done = lowtide("report", graph_file, "--curve", "--json", *more)
        assert (done.code, json.loads(done.stdout)["frontier"]["points"]) == (0, alone["points"]), more
