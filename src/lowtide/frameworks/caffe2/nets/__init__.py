"""NetDef messages: loaded from files or objects, viewed as nets over named blobs, and renamed.

Messages may be those of `netdef` or of caffe2_pb2, which have the same fields. A net in a file that is read and not
changed is written byte for byte as it was.
"""
