"""XLA: HLO modules in, scheduled HLO modules out, beside the order and the addresses that XLA itself chose.

The public names are in `lowtide.xla`. HLO text needs nothing beside lowtide; HloProto, StableHLO and objects of jaxlib
need jaxlib, which is asked for where it is needed.
"""
