// Which contents of a buffer every access of a program sees: a version number that grows with each write.
#pragma once
#include "kernels/structure.hpp"

namespace lowtide {

constexpr int32_t kAbsent = -1;  // the version of a buffer that is not resident, or that nothing has written yet

// Borrowed: op i accesses buffers[first[i] .. first[i + 1]), and writes from writes_from[i] on. A write leaves version
// seen + 1 behind; one that sees kAbsent allocates.
struct Versions {
  std::span<const int64_t> first, writes_from;
  std::span<const int32_t> buffers, seen;
  std::span<const int32_t> at_end;  // per buffer
};

struct OwnedVersions {
  std::vector<int64_t> first{0}, writes_from;
  std::vector<int32_t> buffers, seen, at_end;
};

// Walk the program order and number the contents of every buffer: what exists at the start holds version 0, and so does
// any other buffer after its first write. O(n + e).
OwnedVersions number_versions(std::span<const uint8_t> lifetimes, const Rows& reads, const Rows& mutates,
                              const Rows& writes);

}  // namespace lowtide
