#include "kernels/versions.hpp"

namespace lowtide {

OwnedVersions number_versions(std::span<const uint8_t> lifetimes, const Rows& reads, const Rows& mutates,
                              const Rows& writes) {
  OwnedVersions result;
  auto& current = result.at_end;
  current.resize(lifetimes.size());
  for (size_t b = 0; b < lifetimes.size(); ++b) current[b] = lifetimes[b] <= kDonated ? 0 : kAbsent;
  std::vector<int64_t> written_by(lifetimes.size(), -1);
  const int64_t n_ops = reads.count();
  result.first.reserve(n_ops + 1);
  result.writes_from.reserve(n_ops);
  const size_t most = reads.values.size() + mutates.values.size() + writes.values.size();
  result.buffers.reserve(most);
  result.seen.reserve(most);
  auto access = [&](int32_t buffer) {
    result.buffers.push_back(buffer);
    result.seen.push_back(current[buffer]);
  };
  for (int64_t op = 0; op < n_ops; ++op) {
    for (int32_t buffer : reads[op]) access(buffer);
    const auto writes_from = static_cast<int64_t>(result.buffers.size());
    result.writes_from.push_back(writes_from);
    auto write = [&](int32_t buffer) {  // once an op, also where it mutates and writes a buffer
      if (written_by[buffer] == op) return;
      written_by[buffer] = op;
      access(buffer);
    };
    for (int32_t buffer : mutates[op]) write(buffer);
    for (int32_t buffer : writes[op]) write(buffer);
    const auto end = static_cast<int64_t>(result.buffers.size());
    for (int64_t i = writes_from; i < end; ++i) ++current[result.buffers[i]];
    result.first.push_back(end);
  }
  return result;
}

}  // namespace lowtide
