"""Benchmarks as modules: each is a script that finds its helpers beside itself."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class Load(Protocol):
    """Imports a benchmark script by its name."""

    def __call__(self, name: str) -> ModuleType: ...


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """Import scripts with their folder on the module path; afterwards none of them stays imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield import_module
    ours = [name for name, module in sys.modules.items() if str(BENCHMARKS) in str(getattr(module, "__file__", ""))]
    for name in ours:
        del sys.modules[name]
