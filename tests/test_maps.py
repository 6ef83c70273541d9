"""The maps of the house are true: every room has a layer, and the page shows the layers that are checked."""

import tomllib
from pathlib import Path

from tests.scripts import load_script

ROOT = Path(__file__).parents[1]


def test_every_room_has_a_layer() -> None:
    """An exhaustive contract is broken by a room that stands in none of its layers."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    assert [contract["exhaustive"] for contract in contracts if contract.get("containers") == ["lowtide"]] == [True]


def test_the_page_shows_the_layers_that_are_checked() -> None:
    """When this fails, run scripts/write_rooms.py."""
    rooms = load_script("write_rooms")
    written = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.page(written) == written
