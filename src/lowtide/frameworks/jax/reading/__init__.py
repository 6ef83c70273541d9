"""From a flat program to a graph: what XLA makes one kernel of, what that computes, where the user wrote it."""
