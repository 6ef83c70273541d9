"""The JSON objects that `--json` prints: one type and one JSON Schema per verb.

Bytes exclude persistent buffers; maps are by memory space. An object names its kind and the version of the format.
Fields may be added; the version rises if one goes or changes its meaning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

import msgspec

from lowtide.engine.analysis.holders_at_peak import Holder
from lowtide.engine.analysis.lower_bounds import BoundHolder
from lowtide.engine.plan import Status
from lowtide.engine.planning.measured import CompiledMemory, Measurement, Reserved, RuntimePeaks, RuntimeRun
from lowtide.engine.planning.next_technique import NextTechnique
from lowtide.engine.timeline import Transfers
from lowtide.reporting.claims import ClaimFields
from lowtide.reporting.difference import ProgramDifference
from lowtide.reporting.measured import MeasuredFields
from lowtide.reporting.page.actions import Copied, Rerun, Shared
from lowtide.reporting.plan_difference import PlanDifference
from lowtide.reporting.recorded import RecordedFields
from lowtide.reporting.size_fields import FitsSizesFields

Bytes = Mapping[str, int]


class OutlookFields(TypedDict):
    """Peaks by runtime of a program that a runtime reorders, in `lowtide inspect`."""

    file_bytes: int
    runtime_peaks: RuntimePeaks
    planned_bytes: int


class InspectFields(TypedDict):
    """`lowtide inspect`."""

    name: str
    peak_bytes: Bytes
    persistent_bytes: Bytes
    arena_bytes: Bytes
    arena_lower_bound_bytes: Bytes
    fragmentation_bytes: Bytes
    lower_bound_bytes: Bytes
    claims: Sequence[ClaimFields]
    cut_bytes: Bytes
    bound_op: Mapping[str, str | None]
    bound_holders: Sequence[BoundHolder]
    holders: Sequence[Holder]
    unmodeled: Sequence[str]
    by_runtime: NotRequired[OutlookFields]
    recorded: NotRequired[Sequence[RecordedFields]]
    """Peaks of a memory snapshot; absent for programs."""


class OrderFields(TypedDict):
    """An order in `lowtide compare`."""

    scheduler: str
    peak_bytes: Bytes
    seconds: float


class ComparedFields(TypedDict):
    """All orders of one program, in `lowtide compare`."""

    name: str
    rows: Sequence[OrderFields]
    lower_bound_bytes: Bytes
    claims: Sequence[ClaimFields]
    reserved: NotRequired[Reserved]


class CompareFields(ComparedFields):
    """`lowtide compare`."""

    compiled: NotRequired[ComparedFields]


class OnDeviceFields(TypedDict):
    """A program without a plan on the device of `--device`; peaks exclude persistent memory."""

    program: str
    device: str
    title: str
    usable_bytes: int
    persistent_bytes: int
    eager_peak_bytes: int
    eager_seconds: float
    compiled_peak_bytes: int
    compiled_seconds: float


class PlanFields(TypedDict):
    """`lowtide plan`; costs are in the unit of the ops' costs."""

    status: Status
    scheduler: str
    moved_ops: int
    baseline_peak_bytes: Bytes
    peak_bytes: Bytes
    arena_bytes: Bytes
    arena_lower_bound_bytes: Bytes
    fragmentation_bytes: Bytes
    lower_bound_bytes: Bytes
    persistent_bytes: Bytes
    extra_time: float
    extra_cost: float
    extra_cost_bound: float | None
    solver_bound: float | None
    solver_finds_none: bool
    base_cost: float
    base_order: str | None
    costs: str
    reruns: int
    offloaded_bytes: int
    state_on_host_bytes: int
    parameters_on_host_bytes: int
    updated_on_host_bytes: int
    stall_seconds: float
    hidden_seconds: float
    collective_seconds: float
    exposed_seconds: float
    claims: Sequence[ClaimFields]
    seconds: float
    shortfall: str | None
    chunk_cost: float
    left_whole: Sequence[str]
    to_rounding: bool
    next_technique: NextTechnique | None
    on_device: NotRequired[OnDeviceFields]


class RuntimeFields(TypedDict, total=False):
    """Runtime figures of a program that a runtime reorders, in `lowtide optimize`."""

    level: str | None
    runtime_peaks: RuntimePeaks
    runtime_runs: Sequence[RuntimeRun]
    unmodeled: Sequence[str]
    doubts: Sequence[str]


class OptimizeFields(PlanFields, RuntimeFields, MeasuredFields):
    """`lowtide optimize`."""

    left_alone: NotRequired[str | None]
    compiled: NotRequired[Sequence[CompiledMemory]]


class LevelFields(TypedDict):
    """`lowtide optimize --level` with a framework's own optimizer; bytes by device."""

    level: str
    before_bytes: Bytes
    after_bytes: Bytes
    done: Mapping[str, Sequence[str]]


class PointFields(TypedDict):
    """A budget in `lowtide plan --curve`."""

    budget_bytes: int
    peak_bytes: int
    status: str
    extra_cost: float
    extra_cost_bound: float | None
    solver_bound: float | None
    shortfall: str | None


class CurveFields(TypedDict):
    """`lowtide plan --curve`."""

    space: str
    baseline_peak_bytes: int
    base_order: str
    base_cost: float
    costs: str
    points: Sequence[PointFields]
    knee: int | None


class VerifyFields(TypedDict):
    """`lowtide verify`."""

    valid: bool
    peak_bytes: Bytes
    arena_bytes: Bytes
    claims: Sequence[ClaimFields]
    confirmed_bound_bytes: NotRequired[Bytes]
    not_rechecked: NotRequired[int]
    confirmed_extra_cost: NotRequired[float | None]


class ApplyFields(TypedDict):
    """`lowtide apply`."""

    output: str
    peak_bytes: Bytes


class ExportFields(TypedDict):
    """`lowtide export`."""

    output: str
    format: str
    bytes: int


class FindingFields(TypedDict):
    """A limit in `lowtide check`."""

    rule: str
    space: str
    ok: bool
    bytes: int
    limit_bytes: int
    why: Sequence[str]


class GateFields(TypedDict):
    """A program in `lowtide check`."""

    name: str
    ok: bool
    findings: Sequence[FindingFields]


class CheckFields(TypedDict):
    """`lowtide check`."""

    ok: bool
    checks: Sequence[GateFields]


class HolderFields(TypedDict):
    """Tensors alive at the peak in `lowtide report`; repeated layers are one row."""

    label: str
    space: str
    count: int
    size_bytes: int
    lifetime: str
    op: str | None
    made_at: str | None
    kept_alive_by: Sequence[str]
    freed_by: str
    members: Sequence["MemberFields"]


class MemberFields(TypedDict):
    """A buffer of a row of repeated layers."""

    name: str
    made_at: str | None
    kept_alive_by: Sequence[str]


class ReportFields(TypedDict):
    """`lowtide report`; long lists are cut, `n_` fields give their full length."""

    name: str
    n_ops: int
    n_buffers: int
    in_chunks: bool
    status: Status
    verdict: str
    baseline_peak_bytes: Bytes
    peak_bytes: Bytes
    arena_bytes: Bytes
    lower_bound_bytes: Bytes
    bound_sentence: str
    claims: Sequence[ClaimFields]
    budget_bytes: Mapping[str, int | None]
    shortfall: str | None
    persistent_bytes: Bytes
    measured: Measurement | None
    outputs: str | None
    extra_time: float
    extra_cost: float
    base_cost: float
    costs: str
    n_moved: int
    moved: Sequence[str]
    n_shared: int
    shared: Sequence[Shared]
    n_reruns: int
    reruns: Sequence[Rerun]
    n_copied: int
    copied: Sequence[Copied]
    transfers: Transfers
    n_holders: int
    holders: Sequence[HolderFields]
    frontier: CurveFields | None
    unmodeled: Sequence[str]


class FitsFields(TypedDict):
    """`lowtide fits`; figures of the first memory space."""

    name: str
    fits: bool
    device_bytes: int
    persistent_bytes: int
    baseline_peak_bytes: int
    peak_bytes: int
    state_on_host_bytes: int
    parameters_on_host_bytes: int
    updated_on_host_bytes: int
    techniques: Sequence[str] | None
    tried: Sequence[Sequence[str]]
    extra_cost: float
    base_cost: float
    costs: str
    shortfall: str | None
    options: str


class KindFields(TypedDict):
    """A kind of op in `lowtide costs`."""

    kind: str
    ops: int
    seconds: float


class CostsFields(TypedDict):
    """`lowtide costs`."""

    device: str
    ops: int
    seconds: float
    estimated: Sequence[str]
    kinds: Sequence[KindFields]


class PackFields(TypedDict):
    """`lowtide pack`."""

    status: Status
    method: str
    n_buffers: int
    arena_bytes: int
    lower_bound_bytes: int
    optimal: bool
    gap: float
    capacity_bytes: int | None
    bound_holders: Sequence[str]
    conflict: Sequence[str]
    conflict_minimal: bool
    n_hints: int
    hints_kept: int
    work: int
    seconds: float
    shortfall: str | None


JSON_VERSION = 1
KINDS: Mapping[str, type] = {
    "inspect": InspectFields,
    "compare": CompareFields,
    "plan": PlanFields,
    "curve": CurveFields,
    "optimize": OptimizeFields,
    "level": LevelFields,
    "apply": ApplyFields,
    "verify": VerifyFields,
    "report": ReportFields,
    "export": ExportFields,
    "check": CheckFields,
    "diff": ProgramDifference,
    "diff_plans": PlanDifference,
    "fits": FitsFields,
    "fits_sizes": FitsSizesFields,
    "costs": CostsFields,
    "pack": PackFields,
}


def to_object(kind: str, shown: object) -> dict[str, Any]:
    """Return the object printed by `--json`, with plain values only."""
    return {"kind": kind, "version": JSON_VERSION, **msgspec.to_builtins(shown)}


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind; objects may have additional fields."""
    schema = msgspec.json.schema(KINDS[kind])
    head = {"kind": {"const": kind}, "version": {"const": JSON_VERSION}}
    main = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    main["properties"] = {**head, **main["properties"]}
    main["required"] = [*head, *main.get("required", [])]
    return schema
