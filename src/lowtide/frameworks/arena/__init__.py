"""Run programs in an arena: allocations of a run are recorded once, packed, and then placed at planned addresses."""
