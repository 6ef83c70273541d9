"""Recycling in one pass as memonger's C++ part does it, to the letter, right or wrong."""

from collections.abc import Collection

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.named_net import NamedNet


def one_pass_renames(net: NamedNet, kept: Collection[str]) -> dict[str, str]:
    """Return the new names of blobs that share or could, each the first blob of its storage, as memonger shares them.

    A blob is free from its last reader on. An output that is written for the first time takes what was freed last; of
    the inputs of one op the first counts as the last. Whether the result is right is for the caller to see: devices,
    later writes of a blob and its readers inside step nets are not looked at. Blobs in `kept` keep their storage.

    Source: Caffe2 memonger.cc, optimize_inference_net; it walks the blobs that an op frees in the order of a hash set,
    which for so few is that of their insertion turned round. Complexity: O(n + e).
    """
    begins, ends = dict[str, OpId](), dict[str, OpId]()
    for op, named in enumerate(net.ops):
        ends.update((blob, op) for blob in named.inputs if blob in begins)
        for blob in named.outputs:
            if blob not in kept and blob not in begins:
                begins[blob] = ends[blob] = op
    first_of: dict[str, str] = {}
    free: list[str] = []
    for op, named in enumerate(net.ops):
        freed = [first_of.setdefault(blob, blob) for blob in named.inputs if ends.get(blob) == op]
        for blob in named.outputs:
            if free and begins.get(blob) == op:
                first_of[blob] = free.pop()
        free += reversed(dict.fromkeys(freed))
    return first_of
