"""The costs file: JSON with the seconds of every op."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from lowtide.core.documents import read_document
from lowtide.core.errors import MalformedInputError
from lowtide.core.files import write_bytes
from lowtide.engine.costs.prices import Prices
from lowtide.engine.graph import Graph

_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class CostsRecord(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A costs file. Unknown keys are errors."""

    lowtide_costs: Literal[1]
    device: str
    seconds: dict[str, _Seconds]
    callees: dict[str, dict[str, _Seconds]] = {}
    estimated: list[str] = []
    """Names of ops that were not measured."""


def read_costs_file(path: str | Path, graph: Graph) -> Prices:
    """Read a graph's costs file (`*.costs.json`, `*.costs.json.gz`).

    Raises MalformedInputError for other ops or another format, InputError if it cannot be read.
    """
    path = Path(path)
    record = read_document(path, CostsRecord, "not a valid costs file")
    for name in record.callees:
        if name not in graph.subgraphs:
            raise MalformedInputError(f"{path}: prices callee {name!r}, which graph {graph.name!r} does not have")
    callees = {name: _prices(path, graph.subgraphs[name], table) for name, table in record.callees.items()}
    return Prices(
        profile="measured",
        seconds=_prices(path, graph, record.seconds).seconds,
        callees=callees,
        device=record.device,
        estimated=tuple(record.estimated),
    )


def write_costs_file(graph: Graph, prices: Prices, path: str | Path) -> None:
    """Write prices atomically, gzipped if the name ends in .gz."""
    record = CostsRecord(
        lowtide_costs=1,
        device=prices.device,
        estimated=list(prices.estimated),
        seconds=_table(graph, prices),
        callees={name: _table(graph.subgraphs[name], inner) for name, inner in prices.callees.items()},
    )
    write_bytes(Path(path), msgspec.json.encode(record))


def costs_schema() -> dict[str, Any]:
    return msgspec.json.schema(CostsRecord)


def _table(graph: Graph, prices: Prices) -> dict[str, float]:
    return dict(zip(graph.op_names, prices.seconds.tolist(), strict=True))


def _prices(path: Path, graph: Graph, table: dict[str, float]) -> Prices:
    missing = [name for name in graph.op_names if name not in table]
    if missing:
        raise MalformedInputError(
            f"{path}: has no time for op {missing[0]!r} of graph {graph.name!r} ({len(missing)} are missing); measure "
            "this graph"
        )
    if len(table) > graph.n_ops:
        known = set(graph.op_names)
        other = next(name for name in table if name not in known)
        raise MalformedInputError(f"{path}: prices op {other!r}, which graph {graph.name!r} does not have")
    seconds = np.fromiter((table[name] for name in graph.op_names), np.float64, graph.n_ops)
    return Prices(profile="measured", seconds=seconds)
