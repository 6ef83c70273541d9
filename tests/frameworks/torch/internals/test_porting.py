"""Every file of `internals` loads with the installed PyTorch and is listed in `docs/porting_torch.md`."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from lowtide.frameworks.torch import internals
from tests.scripts import load_script

_FILES = sorted(path.stem for path in Path(internals.__file__).parent.glob("[a-z]*.py"))
_PAGE = Path(__file__).parents[4] / "docs/porting_torch.md"


@pytest.mark.parametrize("name", _FILES)
def test_every_private_name_exists_in_this_release(name: str) -> None:
    assert import_module(f"{internals.__name__}.{name}").__doc__


def test_the_porting_page_lists_every_file_of_internals() -> None:
    table = re.findall(r"^\| (`.+) \|", _PAGE.read_text(), re.MULTILINE)
    assert sorted(name for row in table for name in re.findall(r"`(\w+)`", row.partition("|")[0])) == _FILES


def test_the_script_finds_a_name_that_moved_and_no_other() -> None:
    source = "from torch._dynamo import config\nfrom torch._dynamo import gone\nconfig.gone_too\nconfig.verbose"
    script = load_script("moved_names")
    missing = {script.missing_part(dotted) for dotted in script.dotted_uses(ast.parse(source))}
    assert missing == {None, "torch._dynamo.gone", "torch._dynamo.config.gone_too"}
