"""From a net and the types of its blobs to a graph, with the way back from ops and buffers to the net."""
