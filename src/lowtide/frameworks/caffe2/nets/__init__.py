"""NetDef messages: loaded, viewed as nets over named blobs, and renamed.

Messages may also be those of caffe2_pb2. An unchanged file is written byte for byte.
"""
