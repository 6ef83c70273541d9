"""Mesh-TensorFlow: schedules for GraphInterfaces and graphs, on one device of a mesh or on all of it.

The public names are in `lowtide.mesh_tensorflow`. Nothing of TensorFlow is needed: only methods are called.
"""
