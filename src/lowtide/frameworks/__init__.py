"""One folder a framework: read its programs into graphs, apply plans back, measure. They know nothing of one another."""
