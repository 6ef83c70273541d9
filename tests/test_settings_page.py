"""The page of settings says what the code takes."""

import importlib.util
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[1] / "scripts" / "write_settings.py"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_settings", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_settings_is_what_the_script_writes() -> None:
    script = _script()
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run scripts/write_settings.py"


def test_every_face_takes_a_budget_and_techniques() -> None:
    for parameters in _script().FACES.values():
        assert "budget" in parameters
        assert {"allow", "techniques"} & set(parameters)
