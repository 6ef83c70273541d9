"""TensorFlow: read and plan GraphDefs, order them by control edges or rewrite them as Grappler does, and run them.

The public names are in `lowtide.tensorflow`. Only runs and inference of shapes need TensorFlow.
"""
