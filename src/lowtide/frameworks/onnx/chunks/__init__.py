"""Models whose largest values are computed in chunks: parts of the graph become the body of a Scan over chunks."""
