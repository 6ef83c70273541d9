"""From a model and its shapes to a graph, with the way back from ops to nodes."""
