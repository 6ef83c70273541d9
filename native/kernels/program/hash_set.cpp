#include "kernels/program/hash_set.hpp"

namespace lowtide {
namespace {

constexpr size_t kSmallestTable = 8, kLargeSet = 50'000, kProbes = 9;
constexpr int kPerturbShift = 5;
constexpr int32_t kUnused = -1;

void place(std::vector<int32_t>& table, int32_t number) {
  const size_t mask = table.size() - 1;
  auto perturb = static_cast<size_t>(number);
  for (size_t first = perturb & mask;;) {
    const size_t last = first + kProbes <= mask ? first + kProbes : first;
    for (size_t entry = first; entry <= last; ++entry)
      if (table[entry] == kUnused) {
        table[entry] = number;
        return;
      }
    perturb >>= kPerturbShift;
    first = (first * 5 + 1 + perturb) & mask;
  }
}

}  // namespace

std::vector<int32_t> hash_set_order(std::span<const int32_t> added) {
  std::vector<int32_t> table(kSmallestTable, kUnused);
  size_t used = 0;
  for (int32_t number : added) {
    place(table, number);
    if (++used * 5 < (table.size() - 1) * 3) continue;
    size_t size = kSmallestTable;
    while (size <= used * (used > kLargeSet ? 2 : 4)) size *= 2;
    std::vector<int32_t> larger(size, kUnused);
    for (int32_t held : table)
      if (held != kUnused) place(larger, held);
    table = std::move(larger);
  }
  std::erase(table, kUnused);
  return table;
}

}  // namespace lowtide
