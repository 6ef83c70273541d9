"""Ctrl-C, sent to a real process: the best plan so far is written and marked."""

import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lowtide import read_graph_file, read_plan_file
from lowtide.api.outputs import write_completely
from lowtide.engine.graph.file_format import BufferRecord
from lowtide.engine.graph.op import Op
from lowtide.engine.plan.file_format import RunRow
from tests.cli.conftest import Command, Finished
from tests.oracles.plugin import install_scheduler, module_path

pytestmark = pytest.mark.usefixtures("ctrl_c_heeded")

BEGUN = 'print("it has begun", file=sys.stderr, flush=True)'
FOREVER = f"import sys\n{BEGUN}\nwhile True:\n    pass"


SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
"""Ctrl-C, a scheduler's end, a closed terminal: and what the command exits with."""


def _interrupted(folder: Path, *arguments: object, number: signal.Signals = signal.SIGINT) -> Finished:
    """Run a command, press Ctrl-C when it says that it has begun, and return what it left behind."""
    command = [str(Path(sys.executable).with_name("lowtide")), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": module_path(folder)}
    with subprocess.Popen(
        command, env=environment, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        seen = ""
        for line in process.stderr:
            seen += line
            if "it has begun" in line:
                process.send_signal(number)
                break
        try:
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    return Finished(process.returncode, stdout, seen + stderr)


@pytest.mark.parametrize(("verb", "number"), [*(("plan", number) for number in SIGNALS), ("optimize", signal.SIGINT)])
def test_an_interrupt_while_ordering_writes_the_best_plan_so_far_marked_interrupted(
    graph_file: Path, tmp_path: Path, lowtide: Command, verb: str, number: signal.Signals
) -> None:
    """A third party's order comes last and never ends; all of lowtide's own were tried by then."""
    install_scheduler(tmp_path, "endless", FOREVER)
    out = tmp_path / "out.plan.json"
    done = _interrupted(tmp_path, verb, graph_file, "-o", out, "--json", number=number)
    assert done.code == SIGNALS[number]
    assert "Traceback" not in done.stderr
    assert (json.loads(done.stdout)["status"], json.loads(done.stdout)["peak_bytes"]) == (
        "interrupted",
        {"device": 1211},
    )
    plan = read_plan_file(out, read_graph_file(graph_file))
    assert (plan.status, plan.peak_bytes) == ("interrupted", {"device": 1211})
    assert lowtide("verify", out, graph_file).code == 0


def test_ctrl_c_before_any_order_writes_the_unmodified_program(graph_file: Path, tmp_path: Path) -> None:
    install_scheduler(tmp_path, "endless", FOREVER)
    out = tmp_path / "out.graph.json"
    done = _interrupted(tmp_path, "optimize", graph_file, "-o", out, "--scheduler", "endless")
    assert done.code == 130
    assert "interrupted; order baseline" in done.stdout
    assert read_graph_file(out).fingerprint == read_graph_file(graph_file).fingerprint


@pytest.mark.parametrize("verb", ["inspect", "compare", "plan", "optimize"])
def test_ctrl_c_while_the_program_is_read_ends_with_one_line_and_no_file(tmp_path: Path, verb: str) -> None:
    body = "\n".join(f"    {line}" for line in FOREVER.splitlines())
    (tmp_path / "slow_to_build.py").write_text(f"def program():\n{body}\n")
    output = ["-o", tmp_path / "out.plan.json"] if verb in ("plan", "optimize") else []
    done = _interrupted(tmp_path, verb, "slow_to_build:program", *output)
    assert (done.code, done.stdout) == (130, "")
    assert [line for line in done.complaints if line] == ["it has begun", "lowtide: interrupted"]
    assert not (tmp_path / "out.plan.json").exists()


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupt_while_the_command_itself_is_loaded_ends_with_one_line(
    tmp_path: Path, number: signal.Signals
) -> None:
    """What it imports first is as slow here as it ever may be."""
    (tmp_path / "click.py").write_text(FOREVER)
    done = _interrupted(tmp_path, "inspect", "x.graph.json", number=number)
    assert (done.code, done.stdout) == (SIGNALS[number], "")
    assert done.complaints == ["it has begun", "lowtide: interrupted"]


def test_an_interrupt_that_python_drops_in_a_callback_is_heeded_all_the_same(tmp_path: Path) -> None:
    loop = "while True: pass"
    last = f"class Last:\n        def __del__(self):\n            {BEGUN}\n            {loop}"
    (tmp_path / "loses.py").write_text(f"import sys\ndef program():\n    {last}\n    Last()\n    {loop}\n")
    done = _interrupted(tmp_path, "inspect", "loses:program", number=signal.SIGTERM)
    assert (done.code, done.stdout) == (143, "")
    assert done.complaints[-1] == "lowtide: interrupted"


def test_an_interrupt_within_a_string_that_is_run_ends_with_the_code_of_its_signal(tmp_path: Path) -> None:
    """Python notes such an interrupt, which dataclasses can meet, and would end a module by SIGINT whatever it says."""
    (tmp_path / "running.py").write_text(
        "from lowtide.cli import command, main\n"
        "def run():\n    command.command_is_loaded()\n    exec('import signal; signal.raise_signal(signal.SIGTERM)')\n"
        "command.run = run\nmain()\n"
    )
    command = [sys.executable, "-m", "running"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "lowtide: interrupted\n")


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (Op, {"name": "a", "kind": "k", "reads": [], "writes": []}),
        (BufferRecord, {"name": "a", "size_bytes": 1, "class": "input"}),
        (RunRow, ["run", 0]),
    ],
    ids=["ops", "buffers", "steps"],
)
def test_an_interrupt_is_heeded_while_a_large_file_is_decoded(record: Any, row: Any) -> None:
    """Were it heeded behind the decoder only, that would stumble over the end first."""
    content = msgspec.json.encode([row] * 300_000)[:-1] + b"!"

    def interrupted_decoding() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.005)
        msgspec.json.decode(content, type=list[record])

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    gc.disable()  # what is raised in a callback of the collector, such as a test tool's, is lost
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_decoding()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        gc.enable()


def test_ctrl_c_while_comparing_ends_with_one_line(graph_file: Path, tmp_path: Path) -> None:
    install_scheduler(tmp_path, "endless", FOREVER)
    done = _interrupted(tmp_path, "compare", graph_file)
    assert (done.code, done.stdout) == (130, "")
    assert [line for line in done.complaints if line] == ["it has begun", "lowtide: interrupted"]


def test_ctrl_c_while_writing_still_writes_the_whole_file_and_then_counts(tmp_path: Path) -> None:
    pressed: list[bool] = []

    def write() -> None:
        if not pressed:
            pressed.append(True)
            raise KeyboardInterrupt
        (tmp_path / "out").write_text("whole")

    with pytest.raises(KeyboardInterrupt):
        write_completely(write)
    assert (tmp_path / "out").read_text() == "whole"
