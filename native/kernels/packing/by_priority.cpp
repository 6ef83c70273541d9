#include "kernels/packing/by_priority.hpp"

#include <array>
#include <numeric>
#include <optional>

#include "kernels/packing/in_order.hpp"
#include "kernels/packing/skyline.hpp"

namespace lowtide {
namespace {

constexpr int kOrders = 6, kTieOrders = 10;  // from the first on they only tell the items of one section apart
constexpr int kStaleRounds = 30, kFirstRounds = 4, kWorkPerItem = 512;  // about what placing one takes

// Calls `visit` with every live piece: item, sections and height.
template <class Visit>
void for_pieces(const PackItems& items, Visit visit) {
  for (int32_t i = 0; i < items.n(); ++i) {
    if (items.rectangles()) visit(i, items.first[i], items.last[i], int64_t{0}, items.sizes[i]);
    else
      for (const Piece& piece : items.pieces_of(i)) visit(i, piece.first, piece.last, piece.low, piece.high);
  }
}

// The largest figure in any span of sections. Built in O(n), asked in O(log n).
class SpanMaximum {
 public:
  explicit SpanMaximum(std::span<const int64_t> figures) : n_(figures.size()), tree_(2 * figures.size()) {
    std::copy(figures.begin(), figures.end(), tree_.begin() + static_cast<std::ptrdiff_t>(n_));
    for (size_t k = n_; k-- > 1;) tree_[k] = std::max(tree_[2 * k], tree_[2 * k + 1]);
  }
  int64_t over(size_t first, size_t last) const {
    int64_t most = INT64_MIN;
    for (first += n_, last += n_; first < last; first /= 2, last /= 2) {
      if (first & 1) most = std::max(most, tree_[first++]);
      if (last & 1) most = std::max(most, tree_[--last]);
    }
    return most;
  }

 private:
  size_t n_;
  std::vector<int64_t> tree_;
};

class Loop {
 public:
  Loop(const PackItems& items, int64_t target, const PackLimits& limits)
      : items_(items), target_(target), limits_(limits), n_sections_(items.n_sections()) {
    const bool plain = items.rectangles() &&
                       std::all_of(items.fixed.begin(), items.fixed.end(), [](int64_t at) { return at < 0; });
    if (plain) skyline_.emplace(items);
    live_.assign(n_sections_ + 1, 0);
    for_pieces(items, [&](int32_t, int32_t first, int32_t last, int64_t low, int64_t high) {
      live_[first] += high - low;
      live_[last] -= high - low;
    });
    std::partial_sum(live_.begin(), live_.end(), live_.begin());
  }

  PackResult run(bool improve) {
    const std::vector<int64_t> most = most_met(fullness());
    for (int order = 0; order < kTieOrders && go_on(); ++order) {
      base_[order] = ranks_by_order(order, most);
      if (order < kOrders) attempt(base_[order]);
      else penalize_sections(base_[order], improve ? kFirstRounds : 1);  // what these settle they settle soon, or seldom
    }
    for (int turn = 0; improve && go_on(); ++turn) {
      // Turn and turn about, penalties go to items, which then come first, and to sections, as bytes they seem to hold.
      if (turn % 2 == 0) penalize_items(base_[turn / 2 % kOrders]);
      else penalize_sections(base_[turn / 2 % kTieOrders], kStaleRounds);
    }
    return std::move(best_);
  }

 private:
  bool go_on() {
    if (best_.height <= target_) return false;
    if (best_.rounds == 0) return true;
    return best_.work < limits_.work && !(stopped_ = stopped_ || !limits_.go_on());
  }

  std::vector<int64_t> most_met(const std::vector<int64_t>& figures) const {
    const SpanMaximum maximum({figures.data(), static_cast<size_t>(n_sections_)});
    std::vector<int64_t> most(items_.n(), INT64_MIN);
    for_pieces(items_, [&](int32_t item, int32_t first, int32_t last, int64_t, int64_t) {
      most[item] = std::max(most[item], maximum.over(first, last));
    });
    return most;
  }

  // Sections by live bytes, as distinct figures: of equals the earlier counts as the fuller, so that its items stay together.
  std::vector<int64_t> fullness() const {
    std::vector<int32_t> order(n_sections_);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return live_[a] > live_[b]; });
    std::vector<int64_t> figures(n_sections_ + 1, 0);
    for (int32_t k = 0; k < n_sections_; ++k) figures[order[k]] = n_sections_ - k;
    return figures;
  }

  template <class Key>
  std::vector<int32_t> ranks_by(Key key) const {
    const int32_t n = items_.n();
    std::vector<std::pair<decltype(key(0)), int32_t>> keyed(n);
    for (int32_t i = 0; i < n; ++i) keyed[i] = {key(i), i};
    std::sort(keyed.begin(), keyed.end());
    std::vector<int32_t> ranks(n);
    for (int32_t k = 0; k < n; ++k) ranks[keyed[k].second] = k;
    return ranks;
  }

  std::vector<int32_t> ranks_by_order(int order, const std::vector<int64_t>& most) const {
    using Key = std::array<double, 3>;
    return ranks_by([&](int32_t i) {
      const double met = -static_cast<double>(most[i]), first = items_.first[i], last = items_.last[i], width = first - last;
      const double size = -static_cast<double>(items_.sizes[i]), area = -width * size;
      switch (order) {
        case 0: return Key{met, width, size};
        case 1: return Key{met, area, width};
        case 2: return Key{met, size, width};
        case 3: return Key{width, size, 0};
        case 4: return Key{area, width, 0};
        case 6: return Key{first, width, 0};
        case 7: return Key{-last, width, 0};
        case 8: return Key{size, -first, width};
        case 9: return Key{size, last, width};
        default: return Key{size, width, 0};
      }
    });
  }

  std::vector<int64_t> place(const std::vector<int32_t>& ranks) {
    if (skyline_) return skyline_->place(ranks);
    std::vector<int32_t> order(items_.n());
    for (int32_t i = 0; i < items_.n(); ++i) order[ranks[i]] = i;
    return pack_in_order(items_, order, Gap::kLowest, limits_.go_on);
  }

  // Packs once and keeps the better result; returns the height.
  int64_t attempt(const std::vector<int32_t>& ranks) {
    offsets_ = place(ranks);
    const bool cut_short = offsets_.empty() && items_.n() > 0;
    stopped_ = stopped_ || cut_short;
    const int64_t height = cut_short ? INT64_MAX : height_of(items_, offsets_);
    best_.work += kWorkPerItem * items_.n();
    ++best_.rounds;
    if (height < best_.height) {
      best_.height = height;
      best_.offsets = offsets_;
    }
    return height;
  }

  // By how much the last packing passes the target, per section.
  std::vector<int64_t> overflow() const {
    std::vector<int64_t> over(n_sections_ + 1, 0);
    for_pieces(items_, [&](int32_t item, int32_t first, int32_t last, int64_t, int64_t high) {
      const int64_t excess = offsets_[item] + high - target_;
      if (excess > 0)
        for (int32_t s = first; s < last; ++s) over[s] = std::max(over[s], excess);
    });
    return over;
  }

  void penalize_items(const std::vector<int32_t>& base) {
    std::vector<int64_t> penalty(items_.n(), 0), before(n_sections_ + 1, 0);
    int64_t least = INT64_MAX;
    for (int stale = 0; stale < kStaleRounds && go_on(); ++stale) {
      const int64_t height = attempt(ranks_by([&](int32_t i) { return std::pair{-penalty[i], base[i]}; }));
      if (stopped_) return;
      if (height < least) {
        least = height;
        stale = 0;
      }
      const std::vector<int64_t> over = overflow();
      for (int32_t s = 0; s < n_sections_; ++s) before[s + 1] = before[s] + (over[s] > 0);
      for_pieces(items_, [&](int32_t item, int32_t first, int32_t last, int64_t, int64_t) {
        penalty[item] += before[last] - before[first];
      });
    }
  }

  void penalize_sections(const std::vector<int32_t>& base, int rounds) {
    std::vector<int64_t> weight = live_;
    int64_t least = INT64_MAX;
    for (int stale = 0; stale < rounds && go_on(); ++stale) {
      const std::vector<int64_t> most = most_met(weight);
      const int64_t height = attempt(ranks_by([&](int32_t i) { return std::pair{-most[i], base[i]}; }));
      if (stopped_) return;
      if (height < least) {
        least = height;
        stale = 0;
      }
      const std::vector<int64_t> over = overflow();
      for (int32_t s = 0; s < n_sections_; ++s) weight[s] += over[s];
    }
  }

  const PackItems& items_;
  const int64_t target_;
  const PackLimits& limits_;
  const int32_t n_sections_;
  std::optional<Skyline> skyline_;
  std::vector<int64_t> live_, offsets_;
  std::array<std::vector<int32_t>, kTieOrders> base_;
  PackResult best_;
  bool stopped_ = false;
};

}  // namespace

PackResult pack_by_priority(const PackItems& items, int64_t target, bool improve, const PackLimits& limits) {
  return Loop(items, target, limits).run(improve);
}

}  // namespace lowtide
