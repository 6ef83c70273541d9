"""TensorFlow: GraphDefs in, GraphDefs in another order or with Grappler's rewrites out, run by TensorFlow itself.

The public names are in `lowtide.tensorflow`. TensorFlow itself is needed to run graphs, and to infer shapes where a
graph does not record them.
"""
