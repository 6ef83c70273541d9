"""What shall happen: plans, their file format, and the verifier that trusts nobody."""

from lowtide.plan.plan import HOME, Address, Plan, Status
from lowtide.plan.steps import CopyIn, CopyOut, Free, Run, Step, StepKind

__all__ = [
    "HOME",
    "Address",
    "CopyIn",
    "CopyOut",
    "Free",
    "Plan",
    "Run",
    "Status",
    "Step",
    "StepKind",
]
