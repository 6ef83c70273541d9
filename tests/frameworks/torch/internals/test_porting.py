"""Every file of `internals` loads with the installed PyTorch and is listed in `docs/porting_torch.md`."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from lowtide.frameworks.torch import internals

_FILES = sorted(path.stem for path in Path(internals.__file__).parent.glob("[a-z]*.py"))
_PAGE = Path(__file__).parents[4] / "docs/porting_torch.md"


@pytest.mark.parametrize("name", _FILES)
def test_every_private_name_exists_in_this_release(name: str) -> None:
    assert import_module(f"{internals.__name__}.{name}").__doc__


def test_the_porting_page_lists_every_file_of_internals() -> None:
    table = re.findall(r"^\| (`.+) \|", _PAGE.read_text(), re.MULTILINE)
    assert sorted(name for row in table for name in re.findall(r"`(\w+)`", row.partition("|")[0])) == _FILES
