"""One folder a framework: read its programs, apply plans, measure. Frameworks know nothing of one another.

`model.py` says what each offers, `table.py` which of them reads what; `docs/adding_a_framework.md` how to add one.
"""
