"""TensorFlow Grappler's memory optimizer on lowtide graphs: its levels by name, with plans as results.

The rules choose as Grappler does; names after "Source:" are functions of its memory_optimizer.cc. Recomputed runs and
copies run at their place in the plan, since Grappler's triggers do not delay them on convolution networks.
"""
