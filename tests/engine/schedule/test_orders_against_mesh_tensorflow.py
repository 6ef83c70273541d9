"""Compare with Mesh-TensorFlow's scheduler, recorded by tests/oracles/record_mesh_tensorflow.py."""

import gzip
import json
from pathlib import Path
from typing import Any

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.engine.schedule import scheduler
from lowtide.engine.schedule.mesh_list import MeshList
from tests.oracles.mesh_list_with_defects import mesh_list_with_defects

DATA = Path(__file__).parent.parent.parent / "data"
RECORDS: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / "mesh_tensorflow_orders.json.gz").read_bytes()))


def _problem(record: dict[str, Any]) -> Problem:
    builder = GraphBuilder("recorded")
    for tensor, size in enumerate(record["sizes"]):
        lifetime = Lifetime.OUTPUT if tensor in record["final"] else Lifetime.INTERMEDIATE
        builder.add_buffer(f"t{tensor}", size, lifetime)
    for name, inputs, outputs in record["ops"]:
        builder.add_op(name, "op", reads=inputs, writes=outputs)
    return Problem(builder.build())


def test_orders_are_equal_where_the_defects_of_the_original_do_not_matter() -> None:
    """No tensor is final and no op reads a tensor twice."""
    records = [record for record in RECORDS if not record["defects_matter"]]
    assert len(records) == 150
    for record in records:
        assert scheduler("mesh-list").order(_problem(record)).tolist() == record["order"]


def test_orders_differ_only_by_the_defects_that_are_mended() -> None:
    """The original rule always gives the recorded order; the mended one often does."""
    records = [record for record in RECORDS if record["defects_matter"]]
    equal = 0
    for record in records:
        problem = _problem(record)
        assert mesh_list_with_defects(problem) == record["order"]
        assert MeshList(original=True).order(problem).tolist() == record["order"]
        equal += scheduler("mesh-list").order(problem).tolist() == record["order"]
    assert 0 < equal < len(records) == 150
