// What follows from a program order: dependencies between ops, users and producers of buffers.
#pragma once
#include "kernels/program/csr.hpp"

namespace lowtide {

// Shared with Python's `Lifetime`.
enum Lifetime : uint8_t { kPersistent = 0, kInput = 1, kDonated = 2, kIntermediate = 3, kOutput = 4 };

struct Program {
  std::span<const uint8_t> lifetimes;
  Rows reads, writes, mutates, after;
  std::span<const uint8_t> ordered;
};

struct Structure {
  OwnedRows allocates, touches, predecessors, successors, users;
  std::vector<int32_t> producers;
  int32_t failed_op = -1, failed_buffer = -1;  // first touch of a buffer that nothing has written
};

// O(n + e): every access is visited once, every reader enters at most one anti-dependence.
Structure derive_structure(const Program& program);

}  // namespace lowtide
