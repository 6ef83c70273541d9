"""Mark all tests of this folder."""

from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the mark `jax` to each test."""
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.jax)
