"""The plan file: JSON with a published schema."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from lowtide.core.collection import without_collection
from lowtide.core.documents import PIECE, document_pieces, in_pieces, read_document
from lowtide.core.errors import FingerprintError, MalformedInputError, UsageError, VerificationError
from lowtide.core.files import write_long
from lowtide.core.index_spaces import SpaceId
from lowtide.engine.graph import Graph, Rows
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP, Addresses
from lowtide.engine.plan.claim import Claim, Evidence, Figure, PlanClass
from lowtide.engine.plan.plan import HOME, Plan, Status, StepKind
from lowtide.engine.plan.verify import verify

_Id = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_FirstStep = Annotated[int, msgspec.Meta(ge=BEFORE_THE_FIRST_STEP, le=2**31 - 1)]
_Bytes = Annotated[int, msgspec.Meta(ge=0)]
_BytesBySpace = dict[str, _Bytes]
_TAGS: dict[int, str] = {
    StepKind.RUN: "run",
    StepKind.FREE: "free",
    StepKind.COPY_OUT: "copy_out",
    StepKind.COPY_IN: "copy_in",
}


class _Row(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Base of records written as lists. Too many entries are an error."""

    def __post_init__(self) -> None:
        """Let Python handle Ctrl-C while millions of records are decoded."""


class RunRow(_Row, tag="run"):
    """Run an op with in-place pairs [read buffer, written buffer]."""

    op: _Id
    pairs: list[tuple[_Id, _Id]] = []


class FreeRow(_Row, tag="free"):
    """Free a buffer in the named memory space, by default its home space."""

    buffer: _Id
    space: str | None = None


class CopyOutRow(_Row, tag="copy_out"):
    """Copy a buffer from its home space to the named memory space."""

    buffer: _Id
    space: str


class CopyInRow(_Row, tag="copy_in"):
    """Copy a buffer from the named memory space to its home space."""

    buffer: _Id
    space: str


class AddressRow(_Row):
    """The address of one residency; its first step is -1 if step 0 frees an input."""

    buffer: _Id
    first_step: _FirstStep
    last_step: _Id
    space: str
    offset: _Bytes


StepRow = RunRow | FreeRow | CopyOutRow | CopyInRow
_KINDS: dict[type[StepRow], StepKind] = {
    RunRow: StepKind.RUN,
    FreeRow: StepKind.FREE,
    CopyOutRow: StepKind.COPY_OUT,
    CopyInRow: StepKind.COPY_IN,
}


class _PlanFileRecord(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of records written as objects. Unknown keys are errors."""


class CalleeRecord(_PlanFileRecord):
    """The plan of a graph that ops call."""

    steps: list[StepRow]
    peak_bytes: _BytesBySpace = {}


class ClaimRecord(_PlanFileRecord):
    """A lower bound for a class of plans."""

    figure: Figure
    space: str | None
    over: PlanClass
    at_least: _Bytes | Annotated[float, msgspec.Meta(ge=0)]
    in_place: bool
    in_chunks: bool
    shown_by: Evidence
    base_order: str | None = None


class PlanRecord(_PlanFileRecord):
    """A plan file."""

    lowtide_plan: Literal[1]
    graph: str
    status: Status
    steps: list[StepRow]
    peak_bytes: _BytesBySpace = {}
    lower_bound_bytes: _BytesBySpace = {}
    arena_bytes: _BytesBySpace = {}
    addresses: list[AddressRow] = []
    claims: list[ClaimRecord] = []
    callees: dict[str, CalleeRecord] = {}


class _PlanInPieces(PlanRecord):
    """A plan file with undecoded long lists."""

    steps: msgspec.Raw  # pyright: ignore[reportIncompatibleVariableOverride]
    addresses: msgspec.Raw = msgspec.Raw(b"[]")  # pyright: ignore[reportIncompatibleVariableOverride]


@without_collection()
def read_plan_file(path: str | Path, graph: Graph) -> Plan:
    """Read a plan file (`*.plan.json`, `*.plan.json.gz`) and verify the plan.

    Raises MalformedInputError, FingerprintError for another graph, VerificationError for a wrong plan, InputError for
    an unreadable file. Capacities of infeasible plans are unchecked.
    """
    path, refusal = Path(path), "not a valid plan file"
    record = read_document(path, _PlanInPieces, refusal)
    steps = in_pieces(record.steps, list[StepRow], path, refusal, "steps")
    addresses = in_pieces(record.addresses, list[AddressRow], path, refusal, "addresses")
    try:
        _check_fingerprint(record, graph)
        plan = _from_record(record, steps, addresses, graph)
        del record, steps, addresses  # larger than the plan
        verify(graph, plan, check_capacity=plan.status != "infeasible")
    except (MalformedInputError, FingerprintError, VerificationError) as error:
        raise type(error)(f"{path}: {error}") from None
    return plan


@without_collection()
def write_plan_file(plan: Plan, path: str | Path, graph: Graph) -> None:
    """Write a plan file atomically, gzipped for .gz. Equal plans give equal files.

    Raises UsageError if the path cannot be written or a callee has two plans.
    """
    spaces = [space.name for space in graph.spaces]
    claims: dict[str, Mapping[str, int]] = {
        "peak_bytes": plan.peak_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "arena_bytes": plan.arena_bytes,
    }
    content: dict[str, Any] = {"lowtide_plan": 1, "graph": plan.graph_fingerprint, "status": plan.status, **claims}
    content["steps"] = _step_pieces(plan, spaces)
    content["addresses"] = _address_pieces(plan, spaces)
    if plan.claims:
        content["claims"] = plan.claims
    callees: dict[str, dict[str, Any]] = {}
    _add_callees(plan, graph, callees, set())
    if callees:
        content["callees"] = callees
    write_long(Path(path), document_pieces(content))


def plan_schema() -> dict[str, Any]:
    return msgspec.json.schema(PlanRecord)


def _check_fingerprint(record: PlanRecord, graph: Graph) -> None:
    if record.graph != graph.fingerprint:
        raise FingerprintError(f"the plan was made for another graph than {graph.name!r}; make a new plan for it")


def _from_record(
    record: PlanRecord, steps: Iterable[list[StepRow]], addresses: Iterable[list[AddressRow]], graph: Graph
) -> Plan:
    built: dict[str, Plan] = {}
    plan = _plan_of_steps(steps, graph, record.callees, built)
    uncalled = [name for name in record.callees if name not in built]
    if uncalled:
        raise MalformedInputError(f"there is a plan for callee {uncalled[0]!r}, but no op calls it; remove the plan")
    return plan.with_claims(
        status=record.status,
        peak_bytes=record.peak_bytes,
        lower_bound_bytes=record.lower_bound_bytes,
        arena_bytes=record.arena_bytes,
        addresses=_addresses(addresses, graph),
        claims=tuple(Claim(**msgspec.structs.asdict(row)) for row in record.claims),
    )


def _addresses(pieces: Iterable[list[AddressRow]], graph: Graph) -> Addresses:
    spaces = {space.name: position for position, space in enumerate(graph.spaces)}
    tables = [
        Addresses.of_rows(
            [(row.buffer, row.first_step, row.last_step, _space_id(row.space, spaces), row.offset) for row in piece]
        ).table
        for piece in pieces
    ]
    return Addresses(np.concatenate(tables) if tables else np.zeros(0, np.int64))


def _plan_of_steps(
    pieces: Iterable[list[StepRow]], graph: Graph, records: Mapping[str, CalleeRecord], built: dict[str, Plan]
) -> Plan:
    callees: dict[str, Plan] = {}
    for name in graph.called:
        if name not in records:
            continue
        if name not in built:
            inner = _plan_of_steps([records[name].steps], graph.subgraphs[name], records, built)
            built[name] = replace(inner, peak_bytes=records[name].peak_bytes)
        callees[name] = built[name]
    space_ids = {space.name: position for position, space in enumerate(graph.spaces)}
    kinds, targets, spaces = [np.zeros(0, np.uint8)], [np.zeros(0, np.int32)], [np.zeros(0, np.int16)]
    pairs = [Rows.from_lists([])]
    for rows in pieces:
        kinds.append(np.array([_KINDS[type(row)] for row in rows], np.uint8))
        targets.append(np.array([row.op if isinstance(row, RunRow) else row.buffer for row in rows], np.int32))
        spaces.append(np.array([_space_of(row, space_ids) for row in rows], np.int16))
        used = [row.pairs if isinstance(row, RunRow) else () for row in rows]
        pairs.append(Rows.from_lists([list(chain.from_iterable(of_step)) for of_step in used]))
    return Plan(
        graph_fingerprint=graph.fingerprint,
        kinds=np.concatenate(kinds),
        targets=np.concatenate(targets),
        spaces=np.concatenate(spaces),
        pairs=Rows.joined(pairs),
        callees=callees,
    )


def _space_of(row: StepRow, spaces: Mapping[str, SpaceId]) -> SpaceId:
    return HOME if isinstance(row, RunRow) or row.space is None else _space_id(row.space, spaces)


def _space_id(name: str, spaces: Mapping[str, SpaceId]) -> SpaceId:
    if name not in spaces:
        raise MalformedInputError(f"memory space {name!r} is not one of the graph: {', '.join(map(repr, spaces))}")
    return spaces[name]


def _step_pieces(plan: Plan, spaces: Sequence[str]) -> Iterator[list[list[Any]]]:
    for first in range(0, plan.n_steps, PIECE):
        part = slice(first, first + PIECE)
        kinds: list[int] = plan.kinds[part].tolist()
        rows: list[list[Any]] = [
            [_TAGS[kind], target] for kind, target in zip(kinds, plan.targets[part].tolist(), strict=True)
        ]
        for step in np.flatnonzero(plan.spaces[part] != HOME).tolist():
            rows[step].append(spaces[plan.spaces[first + step]])
        for step in np.flatnonzero(np.diff(plan.pairs.offsets[first : first + PIECE + 1])).tolist():
            rows[step].append(plan.pairs[first + step].reshape(-1, 2).tolist())
        yield rows


def _address_pieces(plan: Plan, spaces: Sequence[str]) -> Iterator[list[list[Any]]]:
    table = Addresses.of(plan.addresses).table
    for first in range(0, len(table), PIECE):
        rows: list[list[int]] = table[first : first + PIECE].tolist()
        yield [[buffer, first_step, last_step, spaces[space], at] for buffer, first_step, last_step, space, at in rows]


def _add_callees(plan: Plan, graph: Graph, table: dict[str, dict[str, Any]], added: set[tuple[str, int]]) -> None:
    for name, inner in plan.callees.items():
        if (name, id(inner)) in added:  # unique while the plan is alive
            continue
        added.add((name, id(inner)))
        callee = graph.subgraphs[name]
        spaces = [space.name for space in callee.spaces]
        steps = list(chain.from_iterable(_step_pieces(inner, spaces)))
        row = {"steps": steps, "peak_bytes": inner.peak_bytes}
        if table.setdefault(name, row) != row:
            raise UsageError(f"there are two plans for callee {name!r}; a plan file can have one")
        _add_callees(inner, callee, table, added)
