"""An error while looking for chunks ends no compilation: the program runs as it is, and a warning asks for a report."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide.torch
from lowtide.frameworks.torch.rewrites.chunks import region_search

TOKENS, WIDTH, CLASSES = 512, 32, 4099
FAILED = "chunks are left out, because looking for them failed: TypeError: no such dimension; report it"


@pytest.fixture(autouse=True)
def _broken_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise TypeError("no such dimension")

    monkeypatch.setattr(region_search, "chunked_op", fail)
    torch.manual_seed(0)
    torch.compiler.reset()


def perplexity() -> Any:
    """Return the loss of a head, and a batch."""
    head = nn.Linear(WIDTH, CLASSES)
    tokens = torch.randint(0, CLASSES, (TOKENS,))
    return lambda x: functional.cross_entropy(head(x), tokens), torch.randn(TOKENS, WIDTH)


def test_a_compiled_program_runs_as_it_is() -> None:
    program, batch = perplexity()
    run = torch.compile(program, backend="lowtide", options={"compiler": "eager"})
    with torch.no_grad(), pytest.warns(UserWarning, match=FAILED):
        assert torch.equal(run(batch), program(batch))


def test_a_captured_program_is_planned_as_it_is() -> None:
    with pytest.warns(UserWarning, match=FAILED):
        result = lowtide.plan(*perplexity())
    assert result.form == "unmodified"


def test_the_search_before_a_compilation_finds_no_chunks() -> None:
    graph = lowtide.torch.capture(perplexity()).graph_module.graph
    with pytest.warns(UserWarning, match=FAILED):
        assert not region_search.has_chunkable_product(graph)
