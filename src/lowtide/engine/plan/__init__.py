"""What shall happen: plans, their file format, and the verifier that trusts nobody."""

from lowtide.engine.plan.addresses import Address, Addresses
from lowtide.engine.plan.file_format import plan_schema, read_plan_file, write_plan_file
from lowtide.engine.plan.plan import HOME, Plan, Status, checked_plan
from lowtide.engine.plan.steps import CopyIn, CopyOut, Free, Run, Step, StepKind
from lowtide.engine.plan.verify import verify

__all__ = [
    "HOME",
    "Address",
    "Addresses",
    "CopyIn",
    "CopyOut",
    "Free",
    "Plan",
    "Run",
    "Status",
    "Step",
    "StepKind",
    "checked_plan",
    "plan_schema",
    "read_plan_file",
    "verify",
    "write_plan_file",
]
