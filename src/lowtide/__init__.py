"""lowtide makes a computation graph fit in memory: it plans, proves, applies and measures."""
