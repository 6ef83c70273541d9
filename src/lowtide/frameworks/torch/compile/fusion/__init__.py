"""Plans under Inductor: its partitioner, fusion within the budget, and the order of its kernels.

If the scheduled kernels exceed the budget, the graph is planned again for a smaller target, and compiled only up to its
schedule.
"""
