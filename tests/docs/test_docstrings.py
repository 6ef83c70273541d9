"""The examples in the docstrings of public names give what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

from lowtide.core.stability import public_names

NAMES = [*(name for name, _ in public_names()), "lowtide.core.stability.stability_of"]


@pytest.mark.parametrize("name", NAMES)
def test_the_example_of_a_public_name_gives_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    names = {attribute: found}
    for example in doctest.DocTestFinder(recurse=False).find(found, name, globs=names):
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)
        assert runner.run(example).failed == 0


def test_what_everybody_uses_has_an_example() -> None:
    for name in ("minimize", "pack", "verify", "save_plan", "holders_at_peak", "GraphBuilder", "write_graph_file"):
        assert ">>>" in (getattr(importlib.import_module("lowtide"), name).__doc__ or "")
