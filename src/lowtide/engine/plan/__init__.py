"""Plans, their file format, and the verifier, which is independent of all planning algorithms.

A plan is a program over a graph: run, free, copy out, copy in, with an address for every residency.

The verifier counts versions: an op may run only if each buffer it touches is resident with the version it has in
program order. It shares no code with the simulator, and both must compute the same peak.

The baseline uses no optional in-place pairs, so its predicted peak is the measured peak of the unmodified program.
"""

from lowtide.engine.plan.addresses import Address, Addresses
from lowtide.engine.plan.file_format import plan_schema, read_plan_file, write_plan_file
from lowtide.engine.plan.plan import HOME, CopyIn, CopyOut, Free, Plan, Run, Status, Step, StepKind, checked_plan
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
