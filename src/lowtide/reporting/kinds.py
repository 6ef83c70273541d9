"""Every kind of object that `--json` prints, and its JSON Schema.

An object says its kind and the version of the format. It gains fields over time; where one goes or comes to mean
something else, the version rises.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from lowtide.reporting import fields
from lowtide.reporting.difference import ProgramDifference
from lowtide.reporting.plan_difference import PlanDifference

JSON_VERSION = 1
Kind = Literal[
    "inspect",
    "compare",
    "plan",
    "curve",
    "optimize",
    "level",
    "apply",
    "verify",
    "report",
    "export",
    "check",
    "diff",
    "diff_plans",
    "fits",
    "costs",
    "pack",
]
KINDS: Mapping[Kind, type] = {
    "inspect": fields.InspectFields,
    "compare": fields.CompareFields,
    "plan": fields.PlanFields,
    "curve": fields.CurveFields,
    "optimize": fields.OptimizeFields,
    "level": fields.LevelFields,
    "apply": fields.ApplyFields,
    "verify": fields.VerifyFields,
    "report": fields.ReportFields,
    "export": fields.ExportFields,
    "check": fields.CheckFields,
    "diff": ProgramDifference,
    "diff_plans": PlanDifference,
    "fits": fields.FitsFields,
    "costs": fields.CostsFields,
    "pack": fields.PackFields,
}


def to_object(kind: Kind, shown: object) -> dict[str, Any]:
    """Return what `--json` prints of a kind, with plain values only."""
    return {"kind": kind, "version": JSON_VERSION, **msgspec.to_builtins(shown)}


def schema_of(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema of a kind; objects may have more fields than it names."""
    schema = msgspec.json.schema(KINDS[kind])
    head = {"kind": {"const": kind}, "version": {"const": JSON_VERSION}}
    main = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    main["properties"] = {**head, **main["properties"]}
    main["required"] = [*head, *main.get("required", [])]
    return schema
