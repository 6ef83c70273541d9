"""Caffe2: NetDefs in, NetDefs with shared or freed storage out, run by a small interpreter.

The public names are in `lowtide.caffe2`. Nothing of Caffe2 is needed: NetDefs are read, written and run here.
"""
