#include "kernels/pack_exact.hpp"

#include "kernels/pack_by_pairs.hpp"
#include "kernels/pack_conflicts.hpp"
#include "kernels/pack_fixed.hpp"
#include "kernels/pack_rank.hpp"
#include "kernels/pack_unplaced.hpp"

namespace lowtide {
namespace {

class Search {
 public:
  Search(const PackItems& items, int64_t capacity)
      : items_(items), conflicts_(pack_conflicts(items)), fixed_(items, conflicts_), cliques_(items), capacity_(capacity) {
    const int32_t n = items.n();
    offset_.assign(n, -1);
    least_.assign(n, 0);
    rank_.assign(n, 0);
  }

  bool complete() const { return conflicts_.only_above_or_below; }
  const std::vector<int64_t>& offsets() const { return offset_; }
  int64_t work() const { return work_; }
  PackFit run(int which, int restart, int64_t placements, int64_t work_limit, const std::function<bool()>& go_on) {
    std::fill(offset_.begin(), offset_.end(), -1);
    std::fill(least_.begin(), least_.end(), 0);
    trail_.clear();
    clique_trail_.clear();
    placed_.clear();
    moved_.clear();
    limit_ = placements_ + placements;
    work_limit_ = work_limit;
    go_on_ = &go_on;
    which_ = which;
    restart_ = restart;
    cliques_.reset();
    std::vector<int32_t> free_items;
    for (int32_t i = 0; i < items_.n(); ++i) {
      if (items_.fixed[i] >= 0) {
        if (items_.fixed[i] + items_.sizes[i] > capacity_) return PackFit::kImpossible;
        offset_[i] = items_.fixed[i];
        cliques_.count(i, -1);
      } else {
        least_[i] = fixed_.lowest_legal(i, 0);
        if (least_[i] + items_.sizes[i] > capacity_) return PackFit::kImpossible;
        free_items.push_back(i);
      }
    }
    for (int32_t c = 0; c < cliques_.n(); ++c)
      if (!raise_floor(c)) return PackFit::kImpossible;
    if (free_items.empty()) return PackFit::kFound;
    return solve_parts(free_items, 0);
  }

 private:
  // Finds the floor of a clique anew; false when what is unplaced there cannot fit above it. Where only one item can be the
  // lowest, since any other would waste more than the clique can spare, the others go above it.
  bool raise_floor(int32_t c) {
    Clique& clique = cliques_[c];
    const auto [floor, second, witness] = lowest_unplaced(clique, offset_, least_);
    work_ += static_cast<int64_t>(clique.items.size());
    clique_trail_.push_back({c, clique.floor, clique.witness});
    clique.floor = floor;
    clique.witness = witness;
    if (witness < 0) return true;
    const int64_t spare = capacity_ - floor - clique.unplaced_bytes;
    if (spare < 0) {
      ++clique.failures;
      ++failures_;
      return false;
    }
    if (second - floor <= spare || second == kFar) return true;
    for (int32_t other : clique.items)
      if (offset_[other] < 0 && other != witness)
        if (const int64_t over = clearance(items_, other, witness); over != kNoConflict && !raise(other, floor + over))
          return false;
    return true;
  }

  // Raises the least offset of an unplaced item; false when it cannot fit there any more.
  bool raise(int32_t item, int64_t offset) {
    if (offset <= least_[item]) return true;
    trail_.push_back({item, least_[item]});
    least_[item] = fixed_.lowest_legal(item, offset);
    moved_.push_back(item);
    return least_[item] + items_.sizes[item] <= capacity_;
  }

  struct Undo {
    size_t least, cliques;
  };

  // Places an item at its least offset; false when that leaves no room for others. To be undone in either case.
  bool place(int32_t item) {
    ++placements_;
    work_ += static_cast<int64_t>(conflicts_[item].size());
    const int64_t at = least_[item];
    offset_[item] = at;
    cliques_.count(item, -1);
    moved_.clear();
    moved_.push_back(item);
    for (const Conflict& conflict : conflicts_[item]) {
      const int32_t other = conflict.other;
      if (offset_[other] < 0 && !raise(other, at + conflict.under)) return false;
    }
    return settle();
  }

  // Finds the floors anew that stood on items just moved, and follows what that moves.
  bool settle() {
    for (size_t k = 0; k < moved_.size(); ++k)
      for (int32_t c = cliques_.first(moved_[k]); c < cliques_.last(moved_[k]); ++c)
        if (cliques_[c].witness == moved_[k] && !raise_floor(c)) return false;
    return true;
  }

  Undo mark() const { return {trail_.size(), clique_trail_.size()}; }

  void undo(int32_t item, const Undo& mark) {
    undo_raises(mark);
    cliques_.count(item, 1);
    offset_[item] = -1;
  }

  void undo_raises(const Undo& mark) {
    while (clique_trail_.size() > mark.cliques) {
      const auto& [c, floor, witness] = clique_trail_.back();
      cliques_[c].floor = floor;
      cliques_[c].witness = witness;
      clique_trail_.pop_back();
    }
    while (trail_.size() > mark.least) {
      least_[trail_.back().first] = trail_.back().second;
      trail_.pop_back();
    }
  }

  // Ranks the items of a part by what remains unplaced. Restarts lean towards items of cliques that failed often, and vary.
  void rank(std::vector<int32_t>& part) {
    std::vector<Rank> keys(part.size());
    for (size_t k = 0; k < part.size(); ++k) {
      const int32_t i = part[k];
      int64_t most = 0;
      double failures = 0;
      for (int32_t c = cliques_.first(i); c < cliques_.last(i); ++c)
        if (cliques_.holds(c, i)) {
          most = std::max(most, cliques_[c].unplaced_bytes);
          failures = std::max(failures, static_cast<double>(cliques_[c].failures));
        }
      const double width = items_.last[i] - items_.first[i], area = width * static_cast<double>(items_.sizes[i]);
      const double factor = restart_ == 0 ? 1.0
                                          : 1.0 + kVariation * noise(restart_, i) +
                                                kLearning * failures * cliques_.n() /
                                                    static_cast<double>(failures_ + 1);
      const double sum = static_cast<double>(most);
      keys[k] = which_ == 0   ? Rank{-sum * factor, -width * factor, -area, i}
                : which_ == 1 ? Rank{-sum * factor, -area * factor, -width, i}
                              : Rank{-width * factor, -area * factor, -sum, i};
    }
    std::sort(keys.begin(), keys.end());
    for (size_t k = 0; k < keys.size(); ++k) {
      part[k] = keys[k].item;
      rank_[part[k]] = static_cast<int32_t>(k);
    }
  }

  // Splits unplaced items where nothing crosses from one section to the next, and solves every part alone.
  PackFit solve_parts(std::vector<int32_t> unplaced, int64_t level) {
    if (!items_.apart.offsets.empty()) {
      rank(unplaced);
      return solve(unplaced, level, -1);
    }
    const size_t before = placed_.size();
    for (std::vector<int32_t>& part : parts_of(items_, std::move(unplaced))) {
      rank(part);
      const PackFit fit = solve(part, level, -1);
      if (fit != PackFit::kFound) {
        unplace_to(before);
        return fit;
      }
    }
    return PackFit::kFound;
  }

  // Whether the item just placed was the last to cross some place that has unplaced items of the part on both sides.
  bool splits(const std::vector<int32_t>& part, int32_t item) const {
    if (!items_.apart.offsets.empty()) return false;
    return comes_apart(cliques_, offset_, part, item);
  }

  PackFit solve(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    if (placements_ >= limit_ || work_ >= work_limit_) return PackFit::kStopped;
    if ((placements_ & 4095) == 0 && !(*go_on_)()) {
      limit_ = 0;
      return PackFit::kStopped;
    }
    work_ += static_cast<int64_t>(part.size());
    const Undo before = mark();
    const PackFit fit = push_up_passed(part, level, last_rank) ? choose(part, level, last_rank) : PackFit::kImpossible;
    if (fit == PackFit::kImpossible) undo_raises(before);
    return fit;
  }

  // An item whose turn at its least offset is over must be pushed up by something unplaced; false when nothing can.
  bool push_up_passed(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    moved_.clear();
    for (int32_t i : part)
      if (offset_[i] < 0 && has_passed(i, level, last_rank)) {
        const int64_t least = least_rise(i, level);
        if (least == kFar || !raise(i, least)) return false;
      }
    return settle();
  }

  bool has_passed(int32_t item, int64_t level, int32_t last_rank) const {
    return least_[item] < level || (least_[item] == level && rank_[item] < last_rank);
  }

  PackFit choose(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    int64_t roof = kFar, largest = 0;
    int32_t first = INT32_MAX, last = 0;
    for (int32_t i : part)
      if (offset_[i] < 0) {
        if (!may_rise(i, level))
          return has_passed(i, level, last_rank) ? PackFit::kImpossible : try_at(part, i, level, last_rank);
        roof = std::min(roof, least_[i] + items_.sizes[i]);
        first = std::min(first, cliques_.first(i));
        last = std::max(last, cliques_.last(i));
      }
    if (roof == kFar) return PackFit::kFound;
    for (int32_t c = first; c < last; ++c) largest = std::max(largest, cliques_[c].unplaced_bytes);
    const int64_t most = std::min(roof - 1, capacity_ - largest);
    struct Choice {
      int64_t offset;
      int32_t rank, item;
      auto operator<=>(const Choice&) const = default;
    };
    std::vector<Choice> choices;
    for (int32_t i : part) {
      if (offset_[i] < 0 && least_[i] <= most && !has_passed(i, level, last_rank))
        choices.push_back({least_[i], rank_[i], i});
    }
    std::sort(choices.begin(), choices.end());
    for (const Choice& choice : choices)
      if (const PackFit fit = try_at(part, choice.item, choice.offset, choice.rank); fit != PackFit::kImpossible) return fit;
    return PackFit::kImpossible;
  }

  // Places an item at its least offset and solves the rest, whose next placement is not before (level, last_rank).
  PackFit try_at(const std::vector<int32_t>& part, int32_t item, int64_t level, int32_t last_rank) {
    const Undo before = mark();
    const size_t placed_before = placed_.size();
    if (!place(item)) {
      undo(item, before);
      return PackFit::kImpossible;
    }
    placed_.push_back({item, before});
    const PackFit fit =
        splits(part, item) ? solve_parts(unplaced_of(part), level) : solve(part, level, last_rank);
    if (fit == PackFit::kImpossible) {
      rerank(part);
      unplace_to(placed_before);
    }
    return fit;
  }

  std::vector<int32_t> unplaced_of(const std::vector<int32_t>& part) const {
    std::vector<int32_t> rest;
    for (int32_t i : part)
      if (offset_[i] < 0) rest.push_back(i);
    return rest;
  }

  void rerank(const std::vector<int32_t>& part) {
    for (size_t k = 0; k < part.size(); ++k) rank_[part[k]] = static_cast<int32_t>(k);
  }

  // Whether something unplaced can still come below the item's top and so push it up.
  bool may_rise(int32_t item, int64_t level) {
    const int64_t top = least_[item] + items_.sizes[item];
    for (const Conflict& conflict : conflicts_[item]) {
      ++work_;
      if (offset_[conflict.other] < 0 && std::max(least_[conflict.other], level) < top) return true;
    }
    return false;
  }

  // The least offset that something unplaced can push the item up to, when nothing goes below `level` any more.
  int64_t least_rise(int32_t item, int64_t level) {
    work_ += static_cast<int64_t>(conflicts_[item].size());
    const int64_t top = least_[item] + items_.sizes[item];
    int64_t least = kFar;
    for (const Conflict& conflict : conflicts_[item])
      if (offset_[conflict.other] < 0)
        if (const int64_t at = std::max(least_[conflict.other], level); at < top) least = std::min(least, at + conflict.over);
    return least;
  }

  void unplace_to(size_t count) {
    while (placed_.size() > count) {
      undo(placed_.back().first, placed_.back().second);
      placed_.pop_back();
    }
  }

  const PackItems& items_;
  const PackConflicts conflicts_;
  const FixedItems fixed_;
  Cliques cliques_;
  const int64_t capacity_;
  std::vector<int64_t> offset_, least_;
  std::vector<int32_t> rank_, moved_;
  std::vector<std::pair<int32_t, int64_t>> trail_;
  struct FloorBefore {
    int32_t clique;
    int64_t floor;
    int32_t witness;
  };
  std::vector<FloorBefore> clique_trail_;
  std::vector<std::pair<int32_t, Undo>> placed_;
  int which_ = 0, restart_ = 0;
  int64_t failures_ = 0;
  int64_t work_ = 0, placements_ = 0, limit_ = 0, work_limit_ = 0;
  const std::function<bool()>* go_on_ = nullptr;
};

}  // namespace

PackFitResult fit_capacity(const PackItems& items, int64_t capacity, const PackLimits& limits) {
  PackFitResult result;
  Search search(items, capacity);
  bool stopped = false;
  auto go_on = [&] { return !(stopped = stopped || !limits.go_on()); };
  auto run = [&](int which, int restart, int64_t limit) {
    if (result.fit == PackFit::kStopped && !stopped && search.work() < limits.work)
      result.fit = search.run(which, restart, limit, limits.work, go_on);
  };
  int restart = 0;
  for (int turn = 0; result.fit == PackFit::kStopped && !stopped && search.work() < limits.work; ++turn) {
    run(turn % 3, 0, int64_t{4096} << turn);
    for (int k = 0; k < 9; ++k) run(k % 3, ++restart, int64_t{1024} << (turn / 2));
  }
  if (result.fit == PackFit::kFound) result.offsets = search.offsets();
  result.work = search.work();
  if (result.fit != PackFit::kImpossible || search.complete()) return result;
  PackFitResult by_pairs = fit_by_pairs(items, capacity, {limits.work - search.work(), limits.go_on});
  by_pairs.work += search.work();
  return by_pairs;
}

}  // namespace lowtide
