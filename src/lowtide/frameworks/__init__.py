"""One folder a framework: read its programs, apply plans, measure. Frameworks know nothing of one another."""
