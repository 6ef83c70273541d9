"""From a program and its settings to a verified plan, and to the frontier of memory and time.

`plan_best_form` calls `find_plan` for the unmodified program and, if that can help, for its forms in chunks.
`find_plan` runs seven stages over one `Draft`: baseline, order, trade, judge, overlap, place, verified. The baseline is
always a candidate, so a plan is never worse than the program. Ctrl-C leaves the best plan found.
"""
