"""Share storage by name: blobs in slots, for runtimes that know no addresses.

Caffe2 keeps one array per blob name, so blobs share memory by sharing a name. These are memonger's algorithms on nets
over named blobs. `verify_sharing` checks each result.

- `slots` serves one order of the ops; `slot_search` finds the best slots.
- `branch_safe` serves executors that run branches at once; `inference_fast` is one pass in program order. Both start
  from memonger's own slots (`memonger_rules`) if valid, so that no result needs more memory than memonger's.
- `graph_sharing` serves graphs of any framework.

The public names are in `lowtide.share`.
"""
