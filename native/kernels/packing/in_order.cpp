#include "kernels/packing/in_order.hpp"

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
    Gaps gaps{items_.alignment[item], gap_};
    if (items_.rectangles()) {
      const int32_t first = items_.first[item], last = items_.last[item];
      const int64_t size = items_.sizes[item];
      for (const Placed& other : placed_)
        if (other.first < last && first < other.last && gaps.end_at(other.offset - size, other.top)) break;
    } else {
      find_blocked(item);
      std::sort(blocked_.begin(), blocked_.end());
      for (const auto& [below, above] : blocked_)
        if (gaps.end_at(below, above)) break;
    }
    put(item, gaps.best >= 0 ? gaps.best : gaps.at);
  }

  std::vector<int64_t> take() { return std::move(offset_); }

 private:
  struct Placed {
    int64_t offset, top;
    int32_t first, last, item;
  };

  // The gap to take, while open intervals of offsets that an item cannot have come by ascending begin.
  struct Gaps {
    int64_t alignment;
    Gap wanted;
    int64_t at = 0, best = -1, best_room = INT64_MAX;

    // Whether the gap is known.
    bool end_at(int64_t below, int64_t above) {
      if (below >= at) {
        if (wanted == Gap::kLowest) return true;
        if (below - at < best_room) {
          best = at;
          best_room = below - at;
        }
      }
      if (above > at) at = aligned(above, alignment);
      return false;
    }
  };

  void put(int32_t item, int64_t offset) {
    offset_[item] = offset;
    const auto where = std::upper_bound(placed_.begin(), placed_.end(), offset,
                                        [](int64_t value, const Placed& other) { return value < other.offset; });
    placed_.insert(where, {offset, offset + items_.sizes[item], items_.first[item], items_.last[item], item});
  }

  // Lists the offsets that the item cannot have, as open intervals.
  void find_blocked(int32_t item) {
    blocked_.clear();
    const bool any_time = !items_.apart.offsets.empty();
    for (const Placed& other : placed_)
      if (any_time || (other.first < items_.last[item] && items_.first[item] < other.last)) block(item, other.item);
  }

  void block(int32_t item, int32_t other) {
    const int64_t at = offset_[other];
    for (const Piece& mine : items_.pieces_of(item))
      for (const Piece& theirs : items_.pieces_of(other))
        if (items_.conflict(mine, theirs)) blocked_.push_back({at + theirs.low - mine.high, at + theirs.high - mine.low});
  }

  const PackItems& items_;
  const Gap gap_;
  std::vector<int64_t> offset_;
  std::vector<Placed> placed_;  // by offset
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
