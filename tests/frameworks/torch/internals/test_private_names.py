"""Only `internals` uses private names of PyTorch and switches the type checker off."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import lowtide

_PACKAGE = Path(lowtide.__file__).parent
_TORCH = _PACKAGE / "frameworks/torch"
_MODULES = sorted(path for path in _PACKAGE.rglob("*.py") if not path.is_relative_to(_TORCH / "internals"))
_OWN_OPERATORS = re.compile(r"(torch\.ops|aten)\.")
"""Operators such as `aten._softmax` are public in graphs."""
_DOCUMENTED = frozenset({"os._exit"})
"""Documented names with an underscore."""


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines: functions, classes, attributes and variables."""
    own: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _dotted(node.value) == "self":
            own.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
    return own


def _is_private(dotted: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in dotted.split("."))


def private_names(tree: ast.Module) -> set[str]:
    """Return the private names of PyTorch that a module imports, accesses, or passes as keywords."""
    own = _own_names(tree)
    found = {name for name in _imported(tree) if name.partition(".")[0] == "torch" and _is_private(name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            dotted = _dotted(node)
            if not _OWN_OPERATORS.match(dotted) and dotted not in _DOCUMENTED:
                found.add(dotted or node.attr)
        elif isinstance(node, ast.keyword) and node.arg is not None and _is_private(node.arg) and node.arg not in own:
            found.add(f"{node.arg}=")
    return found


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: str(path.relative_to(_PACKAGE)))
def test_no_module_outside_internals_uses_private_names_of_pytorch(path: Path) -> None:
    assert private_names(ast.parse(path.read_text())) == set()


@pytest.mark.parametrize(
    "path", [path for path in _MODULES if path.is_relative_to(_TORCH)], ids=lambda path: str(path.relative_to(_TORCH))
)
def test_no_module_for_pytorch_outside_internals_switches_the_type_checker_off(path: Path) -> None:
    assert not re.search(r"#\s*(pyright|type):", path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "import torch._inductor.config",
        "from torch._guards import detect_fake_mode",
        "from torch.utils import _pytree",
        "import torch\ntorch._C._DisableAutocast()",
        "call._boxed_call = True",
        "make_fx(function, _allow_non_fake_inputs=True)",
    ],
)
def test_every_use_of_a_private_name_is_found(source: str) -> None:
    assert private_names(ast.parse(source))


@pytest.mark.parametrize("source", ["import torch\ntorch.ops.aten._softmax.default", "self._own = 1\nother._own"])
def test_operators_and_own_attributes_are_no_private_names(source: str) -> None:
    assert not private_names(ast.parse(source))
