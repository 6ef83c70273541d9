#include "kernels/packing/settle.hpp"

#include <iterator>
#include <map>

namespace lowtide {
namespace {

// The height of what is stacked so far, over sections.
class Stack {
 public:
  int64_t height(int32_t first, int32_t last) const {
    int64_t most = 0;
    for (auto run = std::prev(runs_.upper_bound(first)); run != runs_.end() && run->first < last; ++run)
      most = std::max(most, run->second);
    return most;
  }

  void cover(int32_t first, int32_t last, int64_t height) {
    const int64_t rest = std::prev(runs_.upper_bound(last))->second;
    runs_.erase(runs_.lower_bound(first), runs_.lower_bound(last));
    runs_[first] = height;
    runs_.try_emplace(last, rest);
  }

 private:
  std::map<int32_t, int64_t> runs_{{0, 0}};  // by first section
};

}  // namespace

void settle(const PackItems& items, std::vector<int64_t>& offsets) {
  std::vector<std::pair<int64_t, int32_t>> order;
  for (int32_t i = 0; i < items.n(); ++i)
    if (offsets[i] >= 0) order.push_back({offsets[i], i});
  std::sort(order.begin(), order.end());
  Stack stack;
  for (const auto& [before, i] : order) {
    offsets[i] = aligned(stack.height(items.first[i], items.last[i]), items.alignment[i]);
    stack.cover(items.first[i], items.last[i], offsets[i] + items.sizes[i]);
  }
}

}  // namespace lowtide
