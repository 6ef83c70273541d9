"""Programs named on the command line: "package.module:callable"."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from lowtide.core.errors import LowtideError, UsageError, one_line


def is_callable_name(name: str) -> bool:
    module, colon, attribute = name.rpartition(":")
    if not colon or not _are_identifiers(attribute):
        return False
    return module.endswith(".py") or ("/" not in module and _are_identifiers(module))


_MOST_NAMED = 5


def without_function(path: str, returned: str = "(model, batch)") -> str:
    """Return the message for a Python file named without its function, which returns `returned`."""
    found = _functions_of(Path(path))
    if found is None:
        return f"cannot read {path!r}: no such file; check the path"
    if not found:
        return f"{path!r} has no function without arguments; add one that returns {returned}, give {path}:function"
    return f"{path!r} names no function{_instead(path, found)}, which returns {returned}"


def _functions_of(path: Path) -> list[str] | None:
    """Return the file's functions without required arguments; None if there is no file."""
    if not path.is_file():
        return None
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    functions = (each for each in body if isinstance(each, ast.FunctionDef))
    return [each.name for each in functions if not _needs_arguments(each.args)]


def _needs_arguments(given: ast.arguments) -> bool:
    n_required = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    return n_required > 0 or None in given.kw_defaults


def call_named(name: str) -> Any:
    """Import a module, with its folder on the path, and return the result of its callable.

    Raises UsageError if any of this fails.
    """
    return run_foreign(f"{name}()", named_callable(name))


def named_callable(name: str) -> Callable[[], Any]:
    """Import a module and return the callable; raises UsageError as `call_named`."""
    module, _, attribute = name.rpartition(":")
    target: Any = run_foreign(f"import of {module!r}", lambda: _imported(module))
    for part in attribute.split("."):
        if not hasattr(target, part):
            others = _functions_of(Path(module)) if module.endswith(".py") else None
            raise UsageError(f"module {module!r} has no {attribute!r}{_instead(module, others)}")
        target = getattr(target, part)
    if not callable(target):
        raise UsageError(f"{name} is not callable; name a function that returns (function, inputs)")
    return target


def _instead(module: str, functions: list[str] | None) -> str:
    return "; give " + " or ".join(f"{module}:{each}" for each in functions[:_MOST_NAMED]) if functions else ""


def run_foreign(action: str, code: Callable[[], Any]) -> Any:
    """Run user code; turn exceptions into a UsageError."""
    try:
        return code()
    except LowtideError:
        raise
    except ModuleNotFoundError as error:
        raise UsageError(f"{action} failed: {error}; run from its folder, or install it") from error
    except (Exception, SystemExit) as error:
        raise UsageError(f"{action} failed: {type(error).__name__}: {one_line(error, 1000)}") from error


def _imported(module: str) -> ModuleType:
    if not module.endswith(".py"):
        _put_on_path("")
        return import_module(module)
    path = Path(module).resolve()
    if not path.is_file():
        raise UsageError(f"cannot read {module!r}: no such file; check the path")
    _put_on_path(str(path.parent))
    return import_file(path, path.stem)


def import_file(path: Path, name: str) -> ModuleType:
    """Import a Python file once; raises UsageError for other files."""
    if getattr(sys.modules.get(name), "__file__", None) == str(path):
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import {str(path)!r}; give a Python file")
    made = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(made)
    except BaseException:
        del sys.modules[name]
        raise
    return made


def _put_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _are_identifiers(dotted: str) -> bool:
    return all(part.isidentifier() for part in dotted.split("."))
