"""From a module to a graph: its computations from the innermost out, and the way back from ops to instructions."""
