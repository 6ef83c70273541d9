"""Compute the largest products, losses and updates of a program chunk by chunk.

Three words name the ideas of this room:

- A *chunk* is consecutive rows, computed together. A row is a row of a matrix, a matrix of a batch, a sequence, or an
  image.
- A *region* is a set of ops computed chunk by chunk. A `ProductRegion` is a large product and its consumers, up to
  sums over its rows. An `UpdateRegion` turns a gradient into the update of a tensor.
- A *rule* returns how to compute an op for one chunk (`ChunkedOp`), or None if the op mixes rows.

Chunks are ordinary ops on views. Rules hold in real numbers only, so `Trials` compares each product region with and
without chunks on the real shapes. Results must be bit-equal, or equal up to rounding where allowed.

Each chunk adds to sums over rows, or *windows* compute them afterwards, some columns at a time. If an op needs results
of all rows first, a second pass recomputes the rows (`RecomputeRows`).
"""
