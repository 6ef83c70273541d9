"""The maps of the house are true: every room has a layer, and the page shows the layers that are checked."""

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "write_rooms.py"


def _rooms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_rooms", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_room_has_a_layer() -> None:
    """An exhaustive contract is broken by a room that stands in none of its layers."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    assert [contract["exhaustive"] for contract in contracts if contract.get("containers") == ["lowtide"]] == [True]


def test_the_page_shows_the_layers_that_are_checked() -> None:
    """When this fails, run scripts/write_rooms.py."""
    rooms = _rooms()
    written = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.page(written) == written
