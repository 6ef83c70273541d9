// What every scheduling kernel sees of a graph: borrowed flat arrays, nothing copied.
#pragma once
#include "kernels/program/csr.hpp"
#include "kernels/program/structure.hpp"

namespace lowtide {

struct GraphView {
  int32_t n_ops = 0, n_buffers = 0, n_spaces = 1;
  std::span<const int64_t> sizes;      // per buffer, bytes
  std::span<const uint8_t> lifetimes;  // per buffer, Lifetime
  std::span<const int16_t> spaces;     // per buffer
  std::span<const int32_t> producers;  // per buffer: the op that allocates it, or -1
  Rows allocates;                      // per op: buffers it writes first
  Rows touches;                        // per op: buffers it needs resident, each once
  Rows predecessors, successors;       // per op: ops
  Rows users;                          // per buffer: the ops that touch it, ascending
  Rows in_place;                       // per op: read, written, read, written, ...
  std::span<const int64_t> scratch;    // per op and space, row by row: bytes only needed while it runs

  bool freeable(int32_t buffer) const {
    return lifetimes[buffer] == kDonated || lifetimes[buffer] == kIntermediate;
  }
  // Bytes op needs beyond its outputs while it runs, over all spaces.
  int64_t scratch_of(int32_t op) const {
    int64_t sum = 0;
    for (int32_t s = 0; s < n_spaces; ++s) sum += scratch[int64_t{op} * n_spaces + s];
    return sum;
  }
};

}  // namespace lowtide
