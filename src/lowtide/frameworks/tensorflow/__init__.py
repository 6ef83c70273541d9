"""TensorFlow: read and plan GraphDefs, order them by control edges or rewrite them as Grappler does, and run them.

The public names are in `lowtide.tensorflow`. Graphs are read and written without TensorFlow. TensorFlow itself runs
graphs, and infers shapes that a graph does not record.
"""
