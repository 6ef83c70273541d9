"""Whatever bytes the readers get, they return something valid or raise an error of the tree."""

import json
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import LowtideError
from lowtide.engine.graph import Graph, read_graph_file, write_graph_file
from lowtide.engine.plan import Plan, read_plan_file, verify, write_plan_file
from tests.examples import examples
from tests.golden.every_feature import every_feature_graph, every_feature_plan
from tests.oracles.plans import claim

GRAPH = every_feature_graph()
_ODD: list[Any] = [None, True, -1, 0, 1, 2, 7, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, "", "x", "device", [], {}]
_ODD += [[0], [[0, 1]], {"device": 3}, "a\n\x1b", ["run", 0], ["free", 0]]


@pytest.fixture(scope="module")
def valid_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("valid")
    write_graph_file(GRAPH, folder / "g.graph.json")
    write_plan_file(claim(GRAPH, every_feature_plan(GRAPH)), folder / "p.plan.json", GRAPH)
    return {"graph": (folder / "g.graph.json").read_bytes(), "plan": (folder / "p.plan.json").read_bytes()}


def _read(kind: str, path: Path) -> None:
    """Read a file; what comes back must be usable, what is raised must be one printable line."""
    result: Graph | Plan | LowtideError
    try:
        result = read_graph_file(path) if kind == "graph" else read_plan_file(path, GRAPH)
    except LowtideError as error:
        result = error
    if isinstance(result, LowtideError):
        assert str(result).isprintable()
    elif isinstance(result, Graph):
        verify(result, Plan.baseline(result), check_capacity=False)
    else:
        verify(GRAPH, result, check_capacity=result.status != "infeasible")


@pytest.mark.parametrize("kind", ["graph", "plan"])
@examples(300)
@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, kind: str, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(content)
    _read(kind, path)


@pytest.mark.parametrize("kind", ["graph", "plan"])
@examples(600)
@given(seed=st.integers(0, 10**9))
def test_a_valid_file_with_some_bytes_changed(
    tmp_path_factory: pytest.TempPathFactory, valid_files: dict[str, bytes], kind: str, seed: int
) -> None:
    random = Random(seed)
    content = bytearray(valid_files[kind])
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(content))
        match random.randrange(4):
            case 0:
                content[place] = random.randrange(256)
            case 1:
                del content[place : place + random.randint(1, 20)]
            case 2:
                content[place:place] = random.choice(
                    [b'"', b"[", b"]", b"{", b"}", b",", b"0", b"9" * 30, b"-", b"\\u"]
                )
            case _:
                content[place:place] = content[: random.randint(1, 50)]
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_bytes(bytes(content))
    _read(kind, path)


@pytest.mark.parametrize("kind", ["graph", "plan"])
@examples(1500)
@given(seed=st.integers(0, 10**9))
def test_a_valid_document_with_some_values_changed(
    tmp_path_factory: pytest.TempPathFactory, valid_files: dict[str, bytes], kind: str, seed: int
) -> None:
    random = Random(seed)
    document = json.loads(valid_files[kind])
    for _ in range(random.randint(1, 3)):
        _spoil(document, random)
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_text(json.dumps(document))
    _read(kind, path)


def _spoil(document: Any, random: Random) -> None:
    """Walk to a random place of a JSON value and replace, remove or repeat what is there."""
    container = document
    while True:
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        if not keys:
            return
        key = random.choice(keys)
        inner = container[key]
        if isinstance(inner, dict | list) and inner and random.random() < 0.8:
            container = inner
            continue
        choice = random.randrange(4)
        if choice == 0:
            del container[key]
        elif choice == 1 and isinstance(container, list):
            container.append(deepcopy(inner))
        elif choice == 2 and isinstance(inner, int):
            container[key] = inner + random.choice([-1, 1, 64])
        else:
            container[key] = deepcopy(random.choice(_ODD))
        return
