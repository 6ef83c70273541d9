"""From a program and its settings to a verified plan, and to the frontier of memory and time.

`plan_best_form` is the one way from a program to its plan. It calls `find_plan` for the unmodified program and, if that
can help, for its forms in chunks. `find_plan` runs seven stages over one record, the `Draft`: baseline, order, trade,
judge, overlap, place, verified. The baseline is always a candidate, so a plan is never worse than the program. A stage
that Ctrl-C ends leaves the best plan found.

Facts and sentences are separate: a `Shortfall` holds the reason for a missed budget, `Draft.status` derives the verdict
from facts, and `lowtide.reporting` writes all sentences.
"""
