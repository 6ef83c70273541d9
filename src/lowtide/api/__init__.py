"""The public verbs: open a program, plan, apply, save, measure and compare."""
