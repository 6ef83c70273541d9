"""Compute the largest products, losses and updates of a program chunk by chunk.

Three words name the ideas of this room:

- A *chunk* is consecutive rows, computed together. A row is a row of a matrix, a matrix of a batch, a sequence, or an
  image.
- A *region* is a set of ops computed chunk by chunk. A `ProductRegion` is a large product and the ops that consume it,
  up to sums over its rows. An `UpdateRegion` turns a gradient into the update of a tensor.
- A *rule* gets the `RuleCall` of an op. It returns a `ChunkedOp`, how to compute the op for one chunk, or None if the
  op mixes rows.

Chunks are ordinary ops on views, so planning needs no special case. Rules hold in real numbers only. `Trials` compares
each product region with and without chunks on the real shapes. It accepts chunk sizes with bit-equal results, or with
results equal up to rounding where allowed.

Each chunk adds to sums over rows, or *windows* compute them afterwards, some columns of the product at a time. Large
results of the program are outside of regions. If an op needs results of all rows first, a second pass recomputes the
rows (`RecomputeRows`).
"""
