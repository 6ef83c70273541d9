"""Plans over a graph, their file format, and the verifier, which is independent of all planning algorithms.

A plan is a program: run, free, copy out, copy in, with an address for every residency. "Before", "after" and
"verified" therefore mean the same for every algorithm. Recomputation is a second run of an op and offload a pair of
copies, so both need no further concept. Plans of callees are part of the plan of their caller (`Plan.callees`).

The verifier counts versions: in program order every write makes a new version of a buffer, and an op may run only if
each buffer it touches is resident with the version that the op finds in program order. This rule covers reordering,
mutation, recomputation and offload. The verifier shares no code with the simulator; both must compute the same peak.
It checks all steps together on arrays and reports the first violated rule.

The baseline uses no optional in-place pairs, so that its predicted peak is the measured peak of the unmodified program.
If a framework always overwrites an input, its reader models this as a mutation.

A bound is a claim, and a claim has a class of plans: no order of the program, of the program in chunks, or no plan with
recomputation needs less. Status, captions and plan files all use the claims of a plan.
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
