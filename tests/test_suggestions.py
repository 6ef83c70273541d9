"""A name that is none leads to the one that was meant."""

import pytest

from lowtide import Buffers, minimize, pack
from lowtide.errors import UsageError
from lowtide.graph import GraphBuilder


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheduler": "serach"}, "unknown scheduler 'serach'; did you mean 'search'\\? choose one of given, "),
        ({"effort": "balaced"}, "unknown effort 'balaced'; did you mean 'balanced'\\? choose one of fast, "),
        ({"costs": "eagre"}, "unknown cost profile 'eagre'; did you mean 'eager'\\? choose one of "),
        ({"allow": {"recompte"}}, "unknown technique 'recompte'; did you mean 'recompute'\\? choose one of reorder, "),
        ({"scheduler": "?"}, "unknown scheduler '\\?'; choose one of given, "),
    ],
)
def test_the_nearest_name_is_offered(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        minimize(GraphBuilder("empty").build(), **settings)  # type: ignore[arg-type]


def test_packing_methods_are_offered_too() -> None:
    with pytest.raises(UsageError, match="unknown packing method 'best-fit'; did you mean 'best-fit-by-"):
        pack(Buffers([0], [1], [1]), method="best-fit")
