"""Share storage by name: blobs in slots, for runtimes that know no addresses.

Caffe2 keeps one array per blob name, so blobs share memory by sharing a name. `verify_sharing` checks each result.
"""
