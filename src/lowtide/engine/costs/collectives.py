"""What collectives send: bytes of every rank, by the ring algorithms that libraries use for large tensors."""

from lowtide.engine.costs.kinds import plain_kind


def sent_bytes(kind: str, traffic_bytes: float, ranks: int) -> float:
    """Return how many bytes every rank sends in a collective, from the bytes of its operand and result together.

    A ring of r ranks passes on r - 1 parts of r: a gather or a scatter sends (r - 1) / r of the whole tensor, which is
    r / (r + 1) of operand and result; a reduction to all ranks does both; an exchange sends (r - 1) / r of its operand.
    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
    """
    name = plain_kind(kind)
    if name.startswith(("all_gather", "reduce_scatter")):
        return traffic_bytes * (ranks - 1) / (ranks + 1)
    passes = 2 if name.startswith("all_reduce") else 1
    return passes * traffic_bytes / 2 * (ranks - 1) / ranks
