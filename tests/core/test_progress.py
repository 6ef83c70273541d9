"""Progress: stages for callbacks, a bar on terminals, and Ctrl-C that takes the best plan."""

import os
import re
import subprocess
import sys
import time
from typing import Any

import pytest

import lowtide
from lowtide.core.progress import Found, ProgressBar, Stage, current_report, showing
from tests.oracles.residual_chain import residual_chain
from tests.terminals import shown_on_a_terminal

PLANNED = (Stage.READ, Stage.ORDER, Stage.CHOOSE, Stage.IMPROVE, Stage.FINISH, Stage.DONE)
WORK = """
import sys, time
from lowtide.core.progress import Found, Stage, showing
with showing({progress}) as report:
    report(Stage.CHOOSE)
    report(Found.of(0, 0.14))
    time.sleep(2.6)
    report("a detail")
    report(Stage.DONE)
"""


def test_a_callback_receives_the_stages_in_order_and_the_best_plan() -> None:
    lines: list[str] = []
    lowtide.plan(residual_chain(60), budget="50%", progress=lines.append)
    stages = [line for line in lines if isinstance(line, Stage)]
    assert stages == sorted(stages, key=PLANNED.index)
    assert stages[0] == Stage.READ
    assert stages[-1] == Stage.DONE
    assert any(isinstance(line, Found) and line.startswith("fits at +") for line in lines)


def test_an_interrupt_takes_the_best_plan_found() -> None:
    def interrupt(line: str) -> None:
        if isinstance(line, Found) and line.startswith("fits at"):
            raise KeyboardInterrupt

    result = lowtide.plan(residual_chain(60), budget="50%", progress=interrupt)
    assert result.status == "interrupted"
    (peak,), (before,) = result.peak_bytes.values(), result.baseline_peak_bytes.values()
    assert 2 * peak <= before


def test_inner_work_reports_to_the_outer_callback_unless_turned_off() -> None:
    lines: list[str] = []
    with showing(lines.append):
        with showing(True) as inner:
            inner("kept")
        with showing(False) as inner:
            inner("dropped")
        current_report()("kept, too")
    current_report()("outside")
    assert lines == ["kept", "kept, too"]


@pytest.mark.parametrize(("progress", "is_shown"), [("True", True), ("False", False)])
def test_a_terminal_shows_long_work_with_its_best_plan(progress: str, is_shown: bool) -> None:
    shown = _on_a_terminal(WORK.format(progress=progress))
    assert ("choosing recomputation" in shown) == is_shown
    assert ("fits at +14.0% time, Ctrl-C takes it" in shown) == is_shown
    assert "a detail" not in shown


def test_brackets_in_a_line_are_no_markup() -> None:
    assert "reading a[/b].py" in _on_a_terminal(
        WORK.format(progress="True").replace("Stage.CHOOSE", "'reading a[/b].py'")
    )


def test_nothing_is_shown_without_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK.format(progress="True")], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_line_is_printed_only_if_its_stage_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(prints=True)
    bar("quick")
    bar("slow")
    time.sleep(1.3)
    bar.close()
    assert capsys.readouterr().err == "lowtide: slow ...\n"


def _on_a_terminal(program: str) -> str:
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    command = [sys.executable, "-c", program]
    shown = shown_on_a_terminal(lambda terminal: subprocess.Popen(command, stderr=terminal, env=environment))
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)


def test_a_process_that_only_imports_the_kernel_is_no_notebook() -> None:
    program = "import IPython, ipykernel.kernelbase\n" + WORK.format(progress="True")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr + done.stdout == ""


def test_a_notebook_shows_long_work_below_its_cell_and_removes_it() -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    slow = WORK.format(progress="True") + "\nprint('done')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(slow)])
    shown: list[str | None] = []

    class Client(nbclient.NotebookClient):
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] in ("display_data", "update_display_data"):
                shown.append(msg["content"]["data"].get("text/plain"))
            return super().process_message(msg, cell, cell_index)

    Client(notebook, timeout=60, kernel_name="python3").execute()
    assert any(
        re.fullmatch(r"choosing recomputation  \d s  fits at \+14\.0% time, an interrupt takes it", each)
        for each in shown
        if each is not None
    )
    assert [each["data"] for each in notebook.cells[0].outputs if each["output_type"] == "display_data"] == [{}]
    assert [each["text"] for each in notebook.cells[0].outputs if each["output_type"] == "stream"] == ["done\n"]
