"""From nodes and the bytes of their outputs to a graph, with the way back from ops to nodes."""
