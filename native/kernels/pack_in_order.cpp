#include "kernels/pack_in_order.hpp"

namespace lowtide {
namespace {

constexpr size_t kItemsPerPoll = 1024;

class Placer {
 public:
  Placer(const PackItems& items, Gap gap) : items_(items), gap_(gap), offset_(items.n(), -1) {
    for (int32_t i = 0; i < items.n(); ++i)
      if (items.fixed[i] >= 0) put(i, items.fixed[i]);
  }

  void place(int32_t item) {
    if (offset_[item] >= 0) return;
    find_blocked(item);
    std::sort(blocked_.begin(), blocked_.end());
    const int64_t alignment = items_.alignment[item];
    int64_t at = 0, best = -1, best_room = INT64_MAX;
    for (const auto& [below, above] : blocked_) {
      if (below >= at) {
        if (gap_ == Gap::kLowest) break;
        if (below - at < best_room) {
          best = at;
          best_room = below - at;
        }
      }
      if (above > at) at = aligned(above, alignment);
    }
    put(item, best >= 0 ? best : at);
  }

  std::vector<int64_t> take() { return std::move(offset_); }

 private:
  void put(int32_t item, int64_t offset) {
    offset_[item] = offset;
    placed_.push_back(item);
    first_.push_back(items_.first[item]);
    last_.push_back(items_.last[item]);
  }

  // Lists the offsets that the item cannot have, as open intervals.
  void find_blocked(int32_t item) {
    blocked_.clear();
    const bool any_time = !items_.apart.offsets.empty();
    for (size_t k = 0; k < placed_.size(); ++k)
      if (any_time || (first_[k] < items_.last[item] && items_.first[item] < last_[k])) block(item, placed_[k]);
  }

  void block(int32_t item, int32_t other) {
    const int64_t at = offset_[other];
    if (items_.rectangles()) {
      blocked_.push_back({at - items_.sizes[item], at + items_.sizes[other]});
      return;
    }
    for (const Piece& mine : items_.pieces_of(item))
      for (const Piece& theirs : items_.pieces_of(other))
        if (items_.conflict(mine, theirs)) blocked_.push_back({at + theirs.low - mine.high, at + theirs.high - mine.low});
  }

  const PackItems& items_;
  const Gap gap_;
  std::vector<int64_t> offset_;
  std::vector<int32_t> placed_, first_, last_;
  std::vector<std::pair<int64_t, int64_t>> blocked_;
};

}  // namespace

std::vector<int64_t> pack_in_order(const PackItems& items, std::span<const int32_t> order, Gap gap,
                                   const std::function<bool()>& go_on) {
  Placer placer(items, gap);
  for (size_t k = 0; k < order.size(); ++k) {
    if (k % kItemsPerPoll == kItemsPerPoll - 1 && !go_on()) return {};
    placer.place(order[k]);
  }
  return placer.take();
}

}  // namespace lowtide
