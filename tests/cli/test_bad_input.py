"""Whatever is wrong, there is exactly one line on stderr, the right exit code, no result, and no file."""

import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Finished

USAGE, BAD_INPUT = 2, 3
VERBS = ("inspect", "compare", "plan")


def assert_refused(done: Finished, code: int, *words: str) -> None:
    """Check the one line; all `words` must be in it."""
    assert done.stdout == ""
    assert len(done.complaints) == 1, done.stderr
    assert done.complaints[0].startswith("lowtide: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.complaints[0]
    assert done.code == code


BROKEN_GRAPHS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "not JSON": lambda content: b"\x00\xff\x00\xff",
    "not an object": lambda content: b"[]",
    "another object": lambda content: b'{"hello": 1}',
    "another version": lambda content: content.replace(b'"lowtide_graph":1', b'"lowtide_graph":2'),
    "an unknown key": lambda content: content.replace(b'"reads"', b'"raeds"'),
    "broken gzip": lambda content: gzip.compress(content)[:-20],
    "damaged gzip": lambda content: gzip.compress(content)[:30] + b"x" * 40,
    "negative size": lambda content: content.replace(b"1100", b"-1"),
    "huge size": lambda content: content.replace(b"1100", b"1" + b"0" * 30),
    "dangling reference": lambda content: content.replace(b'"reads":[', b'"reads":[99,'),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("how", BROKEN_GRAPHS)
def test_a_broken_graph_file_is_named(lowtide: Command, graph_file: Path, verb: str, how: str) -> None:
    content = graph_file.read_bytes()
    broken = BROKEN_GRAPHS[how](content)
    assert broken != content
    graph_file.write_bytes(broken)
    assert_refused(lowtide(verb, graph_file), BAD_INPUT, graph_file.name)


@pytest.mark.parametrize("ending", [".graph.json", ".graph.json.gz", ".onnx", ".pt2"])
def test_missing_files_folders_and_garbage_are_bad_input(lowtide: Command, tmp_path: Path, ending: str) -> None:
    model = tmp_path / f"model{ending}"
    assert_refused(lowtide("inspect", model), BAD_INPUT, model.name, "No such file")
    model.mkdir()
    assert_refused(lowtide("inspect", model), BAD_INPUT, model.name)
    model.rmdir()
    for garbage in (b"", b"garbage" * 100, b"PK\x03\x04" + b"x" * 50, bytes(range(256)), b"\x08\x01\x12"):
        model.write_bytes(garbage)
        assert_refused(lowtide("inspect", model), BAD_INPUT, model.name)


@pytest.mark.parametrize("kind", ["onnx_file", "exported_file", "graph_file"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_truncated_model_is_bad_input(
    lowtide: Command, request: pytest.FixtureRequest, tmp_path: Path, kind: str, share: float
) -> None:
    whole: Path = request.getfixturevalue(kind)
    cut = tmp_path / f"cut{''.join(whole.suffixes)}"
    content = whole.read_bytes()
    cut.write_bytes(content[: int(len(content) * share)])
    assert_refused(lowtide("inspect", cut), BAD_INPUT, cut.name)


def test_a_file_that_opens_but_cannot_be_read_is_bad_input(lowtide: Command, tmp_path: Path) -> None:
    (tmp_path / "x.graph.json").symlink_to("/proc/self/mem")
    assert_refused(lowtide("inspect", tmp_path / "x.graph.json"), BAD_INPUT, "cannot read", "x.graph.json")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("model.txt", ["cannot read 'model.txt'", ".onnx"]),
        ("model", ["unknown kind"]),
        ("", ["unknown kind"]),
        ("no_such_module:main", ["no_such_module"]),
        ("json:no_such_name", ["module 'json' has no 'no_such_name'"]),
        ("json.no_such_part:loads", ["json.no_such_part"]),
        ("json:", ["unknown kind"]),
        (":loads", ["unknown kind"]),
        ("../json:loads", ["unknown kind"]),
        ("json:__name__", ["not callable"]),
        ("json:loads", ["TypeError"]),
    ],
)
def test_a_name_that_leads_nowhere_is_a_usage_error(lowtide: Command, model: str, words: list[str]) -> None:
    assert_refused(lowtide("inspect", model), USAGE, *words)


@pytest.mark.parametrize(
    ("content", "given", "words"),
    [
        (
            "def make(): ...\ndef other(width=3): ...\ndef train(epochs): ...",
            "",
            ["give loop.py:make or loop.py:other,"],
        ),
        ("def make(): ...", ":made", ["has no 'made'", "give loop.py:make"]),
        ("def train(epochs): ...", "", ["add one that returns (model, batch)"]),
        ("not Python", "", ["add one that returns (model, batch)"]),
    ],
)
def test_a_script_without_its_function_gets_the_names_of_its_functions(
    lowtide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, given: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text(content)
    assert_refused(lowtide("inspect", f"loop.py{given}"), USAGE, *words)


def test_debug_shows_the_traceback_of_the_programs_own_code(lowtide: Command, programs: str) -> None:
    short = lowtide("plan", f"{programs}:raises")
    assert short.complaints[-1].endswith("(--debug shows where)")
    long = lowtide("plan", f"{programs}:raises", "--debug")
    assert (long.code, long.stdout) == (USAGE, "")
    assert "in raises\n" in long.stderr
    assert long.complaints[-1] == short.complaints[-1].removesuffix(" (--debug shows where)")
    assert "Traceback" not in lowtide("plan", "no_such_model", "--debug").stderr


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        ("not_callable", USAGE, ["not callable"]),
        ("raises", USAGE, ["small_programs:raises() failed", "ValueError: two lines"]),
        ("leaves", USAGE, ["SystemExit: 7"]),
        ("nonsense", USAGE, ["cannot read an int"]),
        ("nothing", USAGE, ["small_programs:nothing returns nothing"]),
        ("name", USAGE, ["returns a string"]),
    ],
)
def test_a_callable_that_gives_no_program_is_refused(
    lowtide: Command, programs: str, function: str, code: int, words: list[str]
) -> None:
    assert_refused(lowtide("plan", f"{programs}:{function}"), code, *words)


@pytest.mark.parametrize("function", ["half", "numbers", "no_tensors", "wrong_shape"])
def test_a_callable_whose_program_cannot_be_captured_is_refused(lowtide: Command, programs: str, function: str) -> None:
    done = lowtide("plan", f"{programs}:{function}")
    assert_refused(done, done.code)
    assert done.code in (USAGE, BAD_INPUT)


@pytest.mark.parametrize(
    "body", ["raise RuntimeError('at import')", "import no_such_package", "1 +", "raise SystemExit"]
)
def test_a_module_that_cannot_be_imported_is_a_usage_error(
    lowtide: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    name = f"broken_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    assert_refused(lowtide("inspect", f"{name}:main"), USAGE, name)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dim", "batch"], ["NAME=N"]),
        (["--dim", "=4"], ["NAME=N"]),
        (["--dim", "batch=four"], ["NAME=N"]),
        (["--dim", "batch=-4"], ["NAME=N"]),
        (["--dim", "batch=" + "9" * 5000], ["NAME=N"]),
        (["--budget", "much"], ["'much'"]),
        (["--budget", "8 potatoes"], ["potatoes"]),
        (["--budget", "-1"], ["-1"]),
        (["--budget", "%"], ["%"]),
        (["--budget", "9" * 5000], ["as a size"]),
        (["--scheduler", "fastest"], ["unknown scheduler 'fastest'", "xla-dfs"]),
        (["--scheduler", "lpmf", "--allow", "share"], ["needs reorder"]),
        (["--allow", "everything"], ["'everything'", "reorder"]),
        (["--allow", "recompute"], ["recompute"]),
        (["--bogus"], ["--bogus"]),
        (["more"], ["more"]),
        (["--budget"], ["--budget"]),
    ],
)
def test_a_wrong_option_is_a_usage_error(
    lowtide: Command, graph_file: Path, tmp_path: Path, options: list[str], words: list[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    done = lowtide("plan", graph_file, "-o", tmp_path / "out.plan.json", *options)
    assert_refused(done, USAGE, *words)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("arguments", [["teleport"], ["--bogus"], ["plan"], ["apply"], ["verify", "x"], ["optimize"]])
def test_a_wrong_command_is_a_usage_error(lowtide: Command, arguments: list[str]) -> None:
    assert_refused(lowtide(*arguments), USAGE, "--help")


def test_a_command_without_a_verb_explains_itself(lowtide: Command) -> None:
    done = lowtide()
    assert done.code == USAGE
    assert all(verb in done.stderr for verb in ("inspect", "compare", "plan", "optimize", "apply", "verify"))


def test_dynamic_dimensions_are_refused_with_their_names_and_unknown_ones_too(
    lowtide: Command, onnx_file: Path, graph_file: Path, programs: str
) -> None:
    assert_refused(lowtide("inspect", onnx_file), BAD_INPUT, "batch")
    done = lowtide("inspect", onnx_file, "--dim", "batch=4", "--dim", "typo=2")
    assert_refused(done, done.code, "typo")
    for model in (graph_file, f"{programs}:train"):
        assert_refused(lowtide("inspect", model, "--dim", "batch=4"), USAGE, "--dim")


@pytest.mark.parametrize("verb", ["plan", "optimize", "apply"])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("no folder/out.plan.json", ["no folder"]),
        ("folder.plan.json", ["not a regular file"]),
        ("diamond.graph.json/out.plan.json", ["Not a directory"]),
        ("out.txt", [".plan.json"]),
        ("out.onnx", [".plan.json"]),
        ("out" * 100 + ".plan.json", ["too long"]),
    ],
)
def test_a_place_that_cannot_take_the_output_is_refused_before_planning(
    lowtide: Command, graph_file: Path, tmp_path: Path, verb: str, place: str, words: list[str]
) -> None:
    (tmp_path / "folder.plan.json").mkdir()
    plan = tmp_path / "made.plan.json"
    lowtide("plan", graph_file, "-o", plan)
    before = sorted(tmp_path.rglob("*"))
    arguments = [plan, graph_file] if verb == "apply" else [graph_file]
    assert_refused(lowtide(verb, *arguments, "-o", tmp_path / place), USAGE, *words)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_cannot_be_written_or_measured_is_said(lowtide: Command, graph_file: Path, programs: str) -> None:
    assert_refused(lowtide("optimize", graph_file), USAGE, "--measure")
    assert_refused(lowtide("optimize", graph_file, "--measure"), BAD_INPUT, "--measure")
    assert_refused(lowtide("optimize", f"{programs}:train", "-o", "out.pt2"), USAGE, ".plan.json")


def test_a_plan_for_another_graph_is_bad_input_and_a_wrong_plan_fails_verification(
    lowtide: Command, graph_file: Path, tmp_path: Path
) -> None:
    plan, other = tmp_path / "made.plan.json", tmp_path / "other.graph.json"
    assert lowtide("plan", graph_file, "-o", plan).code == 0
    other.write_bytes(graph_file.read_bytes().replace(b"1100", b"1101"))
    out = tmp_path / "out.graph.json"
    assert_refused(lowtide("verify", plan, other), BAD_INPUT, "made.plan.json", "another graph")
    assert_refused(lowtide("apply", plan, other, "-o", out), BAD_INPUT, "another graph")
    content = json.loads(plan.read_text())
    wrong = {**content, "steps": content["steps"][:-1]}
    plan.write_text(json.dumps(wrong))
    assert_refused(lowtide("verify", plan, graph_file), 1, "made.plan.json")
    assert_refused(lowtide("apply", plan, graph_file, "-o", out), 1, "made.plan.json")
    assert not out.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", gzip.compress(b"{}", mtime=0)[:-4]])
def test_a_broken_plan_file_is_bad_input(lowtide: Command, graph_file: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.plan.json").write_bytes(content)
    assert_refused(lowtide("verify", tmp_path / "p.plan.json", graph_file), BAD_INPUT, "p.plan.json")
    assert_refused(lowtide("verify", tmp_path / "missing.plan.json", graph_file), BAD_INPUT, "No such file")


def test_names_that_are_no_text_are_refused_in_one_line(lowtide_process: Command, tmp_path: Path) -> None:
    for ending in (".graph.json", ".onnx", ".txt"):
        done = lowtide_process("inspect", os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff\xfe" + ending.encode()))
        assert_refused(done, USAGE if ending == ".txt" else BAD_INPUT)


def test_a_graph_file_may_have_a_name_that_is_no_text(
    lowtide_process: Command, graph_file: Path, onnx_file: Path
) -> None:
    for path, options in ((graph_file, []), (onnx_file, ["--dim", "batch=4"])):
        odd = os.fsdecode(os.fsencode(path.parent) + b"/\xff\xfe" + path.name.encode())
        os.rename(path, odd)
        for form in ([], ["--json"]):
            assert lowtide_process("inspect", odd, *options, *form).code == 0


class _Touches:
    """An object whose pickle makes a file when it is read."""

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("it_ran"),)


@pytest.mark.parametrize("verb", [["inspect"], ["compare"], ["plan"], ["optimize", "--measure"]])
def test_a_file_that_would_run_code_runs_none_unless_it_is_trusted(
    lowtide: Command, exported_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    doctored, pickled = tmp_path / "doctored.pt2", io.BytesIO()
    torch.save(((torch.ones(4, 8), _Touches()), {}), pickled)
    with zipfile.ZipFile(exported_file) as whole, zipfile.ZipFile(doctored, "w") as copy:
        for name in whole.namelist():
            copy.writestr(name, pickled.getvalue() if "sample_inputs" in name else whole.read(name))
    done = lowtide(*verb, doctored)
    assert not Path("it_ran").exists()
    if "--measure" in verb:
        assert_refused(done, BAD_INPUT, "no real inputs", "--trust")
    else:
        assert done.code == 0
    lowtide(*verb, doctored, "--trust")
    assert Path("it_ran").exists()
