"""The published JSON Schemas are those of the code, and describe what is written."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.costs import costs_schema
from lowtide.engine.graph import Graph, graph_schema, write_graph_file
from lowtide.engine.plan import Plan, plan_schema, write_plan_file
from lowtide.reporting.fields import KINDS, schema_of
from tests.golden.every_feature import every_feature_graph, every_feature_plan
from tests.oracles.plans import claim, plan_of
from tests.strategies import graphs

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.mark.parametrize(
    ("name", "schema"), [("costs", costs_schema()), ("graph", graph_schema()), ("plan", plan_schema())]
)
def test_the_published_schema_is_up_to_date(name: str, schema: dict[str, Any]) -> None:
    """When this fails, run scripts/write_schemas.py."""
    published = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
    assert {key: value for key, value in published.items() if key not in ("$schema", "title")} == schema


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_schema_of_what_a_verb_prints_is_up_to_date(kind: str) -> None:
    """When this fails, run scripts/write_schemas.py."""
    published = json.loads((SCHEMAS / "json" / f"{kind}.schema.json").read_text(encoding="utf-8"))
    assert {key: value for key, value in published.items() if key not in ("$schema", "title")} == schema_of(kind)


def test_the_golden_files_fit_the_published_schemas(tmp_path: Path) -> None:
    graph = every_feature_graph()
    _check(tmp_path, graph, every_feature_plan(graph))


@given(st.data())
def test_every_written_file_fits_the_published_schemas(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    graph: Graph = data.draw(graphs())
    _check(tmp_path_factory.getbasetemp(), graph, plan_of(graph, range(graph.n_ops)))


@pytest.mark.parametrize(
    "broken",
    [
        {"lowtide_plan": 2},
        {"steps": [["jump", 1]]},
        {"steps": [["run", -1]]},
        {"steps": [["run"]]},
        {"steps": [["free", 0, "device", 3]]},
        {"peak_bytes": {"device": -1}},
        {"addresses": [[0, 0, 1, 0, 0]]},
        {"unknown": 1},
    ],
)
def test_the_plan_schema_refuses_what_the_reader_refuses(broken: dict[str, Any]) -> None:
    valid = {"lowtide_plan": 1, "graph": "0", "status": "feasible", "steps": []}
    jsonschema.validate(valid, plan_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**valid, **broken}, plan_schema())


def _check(folder: Path, graph: Graph, plan: Plan) -> None:
    write_graph_file(graph, folder / "x.graph.json")
    write_plan_file(claim(graph, plan), folder / "x.plan.json", graph)
    for name in ("graph", "plan"):
        published = json.loads((SCHEMAS / f"{name}.schema.json").read_text(encoding="utf-8"))
        jsonschema.validate(json.loads((folder / f"x.{name}.json").read_text(encoding="utf-8")), published)
