"""The house keeps its shape: short files, tests that mirror the source, a verifier that trusts no algorithm."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MOST_LINES = 400
ENDINGS = (".py", ".cpp", ".hpp")
SOURCES = sorted(path for part in ("src", "native") for path in (ROOT / part).rglob("*") if path.suffix in ENDINGS)
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_no_source_file_is_longer_than_people_read(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", [path for path in SOURCES if path.suffix == ".py"], ids=_name)
def test_every_module_says_first_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", SCRIPTS, ids=_name)
def test_every_benchmark_can_be_imported_without_running(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    spec = importlib.util.spec_from_file_location(f"benchmarks_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("path", sorted((ROOT / "src/lowtide/engine/plan").glob("*.py")), ids=_name)
def test_the_plan_and_its_verifier_import_no_native_kernel(path: Path) -> None:
    """The layer contract cannot see compiled modules, so that this is checked here."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert "_native" not in (node.module or "")
            assert all(alias.name != "_native" for alias in node.names)
        elif isinstance(node, ast.Import):
            assert all("_native" not in alias.name for alias in node.names)


def test_no_two_classes_share_a_name() -> None:
    """One word, one idea: a reader who meets a name twice must not ask which one is meant."""
    sources = [path for path in SOURCES if path.suffix == ".py"]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources]
    names = [node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert sorted({name for name in names if names.count(name) > 1}) == []
