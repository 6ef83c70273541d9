"""Print the private names of PyTorch that moved: .venv/bin/python scripts/moved_names.py

Reads the files of `frameworks/torch/internals` without running them, and looks up their names in the installed PyTorch:
imports, and attributes of modules and classes. Attributes of other objects count as missing if no source file of
PyTorch contains the word. Exits with 1 if a name is missing. Run it with the Python that has the release to examine.
"""

import ast
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass, ismodule
from logging import Logger
from pathlib import Path

import torch

INTERNALS = Path(__file__).parents[1] / "src/lowtide/frameworks/torch/internals"
_WORD = re.compile(rb"\w+")
_OF_OTHERS = frozenset(name for kind in (dict, list, set, str, bytes, int, Logger) for name in dir(kind)) | {
    "_bit_generator"  # NumPy
}


def dotted_uses(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of each import of PyTorch, and of each attribute of an imported object.

    `releases.py` checks for its names itself.
    """
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            bound.update({each.asname or "torch": each.name for each in node.names if _is_torch(each.name)})
            yield from (each.name for each in node.names if _is_torch(each.name))
        elif isinstance(node, ast.ImportFrom) and node.module and _is_torch(node.module):
            bound.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
            yield from (f"{node.module}.{each.name}" for each in node.names)
    bound["torch"] = "torch"
    for node in ast.walk(tree):
        parts: list[str] = []
        base: ast.AST = node
        while isinstance(base, ast.Attribute):
            parts.insert(0, base.attr)
            base = base.value
        if parts and isinstance(base, ast.Name) and base.id in bound:
            yield ".".join([bound[base.id], *parts])


def _is_torch(name: str) -> bool:
    return name.partition(".")[0] == "torch"


def missing_part(dotted: str) -> str | None:
    """Return the first part of a dotted name that the installed PyTorch lacks, or None."""
    found: object = torch
    path = "torch"
    for part in dotted.split(".")[1:]:
        path = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        elif not (ismodule(found) or isclass(found)):
            return None
        else:
            try:
                found = import_module(path)
            except ImportError:
                return path
    return None


def unbound_attributes(tree: ast.AST) -> set[str]:
    """Return the attributes that a file reads from objects of PyTorch, without those that it stores or defines."""
    nodes = list(ast.walk(tree))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and str(node.module).startswith("lowtide")]
    modules = {each.asname or each.name for node in imports for each in node.names}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    own |= {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id in modules}
    fields = [node.target for node in nodes if isinstance(node, ast.AnnAssign)]
    own |= {target.id for target in fields if isinstance(target, ast.Name)}
    return {node.attr for node in attributes if "lowtide" not in node.attr} - own - _OF_OTHERS


def words_of_pytorch() -> set[str]:
    """Return all words in the Python files of the installed PyTorch."""
    folder = Path(torch.__file__).parent
    files = [path for ending in ("*.py", "*.pyi") for path in folder.rglob(ending)]
    return {word.decode() for path in files for word in _WORD.findall(path.read_bytes())}


def main() -> int:
    """Print the missing names of each file, and return the exit code."""
    words, n_missing = words_of_pytorch(), 0
    for path in sorted(set(INTERNALS.glob("[a-z]*.py")) - {INTERNALS / "releases.py"}):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        missing = {part for dotted in dotted_uses(tree) if (part := missing_part(dotted))}
        missing |= {f"?.{name}" for name in unbound_attributes(tree) - words}
        n_missing += len(missing)
        for name in sorted(missing):
            print(f"{path.stem}: {name}")
    print(f"PyTorch {torch.__version__}: {n_missing} names moved")
    return int(n_missing > 0)


if __name__ == "__main__":
    sys.exit(main())
