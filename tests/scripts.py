"""The scripts and examples of the project as modules, for tests of what they would write or do."""

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).parents[1] / "scripts"


def load_script(name: str) -> ModuleType:
    """Return scripts/NAME.py as a module, without running it."""
    return _load(SCRIPTS / f"{name}.py")


def load_example(name: str) -> ModuleType:
    """Return examples/NAME.py as a module, without running it."""
    return _load(SCRIPTS.parent / "examples" / f"{name}.py")


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
