"""Share storage by name: blobs in slots, for runtimes that know no addresses.

Caffe2 keeps one array per blob name, so blobs share memory by sharing a name. These are the algorithms of Caffe2's
memonger on nets over named blobs (`named_net`). Each result is checked by `verify_sharing`, which uses none of them.

- `slots` renames blobs that are never live together in one order of the ops; `slot_search` finds the best slots.
- `branch_safe` stays valid if an executor runs branches at once; `inference_fast` is one pass in program order.
- `memonger_rules` reproduces the slots of memonger's own C++ part. Both start from these slots if they are
  valid, so that no result needs more memory than memonger's.
- `graph_sharing` finds slots for the buffers of a graph.

The public names are in `lowtide.share`.
"""
