"""The maps of the house are true: every room has a layer, and the page shows the layers that are checked."""

import re
import tomllib
from pathlib import Path

from tests.scripts import load_script

ROOT = Path(__file__).parents[1]


def test_every_room_has_a_layer() -> None:
    """An exhaustive contract is broken by a room outside of its layers."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    assert [contract["exhaustive"] for contract in contracts if contract.get("containers") == ["lowtide"]] == [True]


def test_the_page_shows_the_layers_that_are_checked() -> None:
    """When this fails, run scripts/write_rooms.py."""
    rooms = load_script("write_rooms")
    written = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.page(written) == written


def test_the_page_has_the_tables_of_the_main_rooms() -> None:
    page = load_script("write_rooms").PAGE.read_text(encoding="utf-8")
    tables = re.findall(r"<!-- rooms of (\S+) -->\n\n\| floor", page)
    assert {"lowtide", "lowtide.engine", "lowtide.frameworks", "lowtide.frameworks.torch"} <= set(tables)
    assert len(tables) == page.count("<!-- rooms of ") == page.count("<!-- end of ")


def test_a_table_that_is_out_of_date_is_rewritten() -> None:
    """The test above compares the page with this, so that it fails for such a table."""
    rooms = load_script("write_rooms")
    written = rooms.PAGE.read_text(encoding="utf-8")
    stale = written.replace("| 1 | `core` |", "| 2 | `core` |", 1)
    assert stale != written
    assert rooms.page(stale) == written
