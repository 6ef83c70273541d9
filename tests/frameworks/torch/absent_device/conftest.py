"""One cache for the C++ parts of absent devices, which are compiled once."""

from collections.abc import Iterator

import pytest

from tests.examples import folder_of_the_run


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOWTIDE_CACHE", str(folder_of_the_run(tmp_path_factory) / "cache"))
        yield
