#include "kernels/pack_canonical.hpp"

#include <array>
#include <numeric>

#include "kernels/pack_conflicts.hpp"
#include "kernels/pack_unplaced.hpp"

namespace lowtide {
namespace {

constexpr int kRanks = 3;

class CanonicalSearch {
 public:
  CanonicalSearch(const PackItems& items, std::span<const int64_t> steps, int64_t capacity, int32_t inferences,
                  const PackLimits& limits)
      : items_(items), steps_(steps), conflicts_(pack_conflicts(items)), cliques_(items), capacity_(capacity),
        inferences_(inferences), limits_(limits), rank_(items.n(), 0) {}

  const std::vector<int64_t>& offsets() const { return offset_; }
  int64_t work() const { return work_; }
  bool may_go_on() { return !stopped_ && work_ < limits_.work; }

  // Searches once more from the start, for so many nodes.
  PackFit run(int which, int64_t nodes) {
    offset_.assign(items_.n(), -1);
    least_.assign(items_.n(), 0);
    raises_.clear();
    floors_.clear();
    placed_.clear();
    choices_.clear();
    cliques_.reset();
    which_ = which;
    node_limit_ = nodes_ + nodes;
    for (int32_t c = 0; c < cliques_.n(); ++c)
      if (cliques_[c].unplaced_bytes > capacity_) return PackFit::kImpossible;
    for (int32_t i = 0; i < items_.n(); ++i)
      if (items_.sizes[i] > capacity_) return PackFit::kImpossible;
    raised_.clear();
    for (int32_t c = 0; infers(kFloors) && c < cliques_.n(); ++c)
      if (!find_floor(c)) return PackFit::kImpossible;
    if (!settle()) return PackFit::kImpossible;
    std::vector<int32_t> all(items_.n());
    std::iota(all.begin(), all.end(), 0);
    rank(all);
    return infers(kDecompose) ? solve_parts(std::move(all), 0) : solve(all, 0, -1);
  }

 private:
  struct Choice {
    int64_t offset;
    int32_t rank, item;
    auto operator<=>(const Choice&) const = default;
  };
  struct FloorBefore {
    int32_t clique;
    int64_t floor;
    int32_t witness;
  };
  struct Placed {
    int32_t item;
    size_t raises, floors;
  };

  bool infers(CanonicalInference what) const { return (inferences_ & what) != 0; }

  // Sorts a part by preference, and numbers its items so.
  void rank(std::vector<int32_t>& part) {
    std::vector<std::pair<std::array<int64_t, 3>, int32_t>> keys;
    for (int32_t i : part) {
      int64_t most = 0;
      for (int32_t c = cliques_.first(i); c < cliques_.last(i); ++c) most = std::max(most, cliques_[c].unplaced_bytes);
      const int64_t width = steps_[i];
      const double area = static_cast<double>(width) * static_cast<double>(items_.sizes[i]);
      const int64_t area_rank = -static_cast<int64_t>(std::min(area, 9e18));
      keys.push_back({which_ == 0   ? std::array{-width, area_rank, -most}
                      : which_ == 1 ? std::array{-most, area_rank, -width}
                                    : std::array{-most, -width, area_rank},
                      i});
    }
    std::sort(keys.begin(), keys.end());
    for (size_t k = 0; k < keys.size(); ++k) part[k] = keys[k].second;
    number(part);
  }

  void number(const std::vector<int32_t>& part) {
    for (size_t k = 0; k < part.size(); ++k) rank_[part[k]] = static_cast<int32_t>(k);
  }

  // Finds the least offset of what is unplaced in a clique, and an item that has it; false when too little room is left above.
  bool find_floor(int32_t c) {
    Clique& clique = cliques_[c];
    const auto [floor, second, witness] = lowest_unplaced(clique, offset_, least_);
    work_ += static_cast<int64_t>(clique.items.size());
    floors_.push_back({c, clique.floor, clique.witness});
    clique.floor = floor;
    clique.witness = witness;
    if (witness < 0) return true;
    const int64_t spare = capacity_ - floor - clique.unplaced_bytes;
    if (spare < 0) return false;
    if (!infers(kLowestOnly) || second == kFar || second - floor <= spare) return true;
    for (int32_t i : clique.items)
      if (offset_[i] < 0 && i != witness && !raise(i, floor + items_.sizes[witness])) return false;
    return true;
  }

  // Raises the least offset of an unplaced item; false when it cannot fit there any more.
  bool raise(int32_t item, int64_t offset) {
    if (offset <= least_[item]) return true;
    raises_.push_back({item, least_[item]});
    raised_.push_back(item);
    least_[item] = aligned(offset, items_.alignment[item]);
    return least_[item] + items_.sizes[item] <= capacity_;
  }

  // Finds the floors anew that stood on items just raised or placed, and follows what that raises.
  bool settle() {
    for (size_t k = 0; infers(kFloors) && k < raised_.size(); ++k)
      for (int32_t c = cliques_.first(raised_[k]); c < cliques_.last(raised_[k]); ++c)
        if (cliques_[c].witness == raised_[k] && !find_floor(c)) return false;
    return true;
  }

  // Places an item at its least offset; false when that leaves no room for others. To be undone in either case.
  bool place(int32_t item, bool& raises_any) {
    placed_.push_back({item, raises_.size(), floors_.size()});
    offset_[item] = least_[item];
    cliques_.count(item, -1);
    raised_.assign(1, item);
    work_ += static_cast<int64_t>(conflicts_[item].size());
    for (const Conflict& conflict : conflicts_[item])
      if (offset_[conflict.other] < 0 && !raise(conflict.other, offset_[item] + conflict.under)) {
        raises_any = true;
        return false;
      }
    raises_any = raised_.size() > 1;
    return settle();
  }

  void unplace_to(size_t count) {
    for (; placed_.size() > count; placed_.pop_back()) {
      const Placed& last = placed_.back();
      for (; floors_.size() > last.floors; floors_.pop_back()) {
        cliques_[floors_.back().clique].floor = floors_.back().floor;
        cliques_[floors_.back().clique].witness = floors_.back().witness;
      }
      for (; raises_.size() > last.raises; raises_.pop_back()) least_[raises_.back().first] = raises_.back().second;
      cliques_.count(last.item, 1);
      offset_[last.item] = -1;
    }
  }

  // Solves every part of what is unplaced alone, small ones first.
  PackFit solve_parts(std::vector<int32_t> unplaced, int64_t level) {
    const size_t before = placed_.size();
    for (std::vector<int32_t>& part : parts_of(items_, std::move(unplaced))) {
      if (infers(kRankParts)) {
        rank(part);
      } else {
        std::sort(part.begin(), part.end(), [&](int32_t a, int32_t b) { return rank_[a] < rank_[b]; });
        number(part);
      }
      if (const PackFit fit = solve(part, level, -1); fit != PackFit::kFound) {
        unplace_to(before);
        return fit;
      }
    }
    return PackFit::kFound;
  }

  // Solves a part whose next placement is not before (level, last_rank).
  PackFit solve(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    if (nodes_ >= node_limit_ || work_ >= limits_.work) return PackFit::kStopped;
    if ((nodes_++ & 4095) == 0 && !limits_.go_on()) stopped_ = true;
    if (stopped_) return PackFit::kStopped;
    if (infers(kPushUp) && !push_up_passed(part, level, last_rank)) return PackFit::kImpossible;
    const size_t begin = choices_.size();
    if (!find_choices(part, level, last_rank)) return PackFit::kFound;
    const size_t end = choices_.size();
    PackFit fit = PackFit::kImpossible;
    for (size_t k = begin; k < end && fit == PackFit::kImpossible; ++k) {
      bool raises_any = false;
      fit = try_at(part, choices_[k], raises_any);
      if (infers(kNoAlternative) && !raises_any) break;
    }
    choices_.resize(begin);
    return fit;
  }

  // An item whose turn at its least offset is over must be pushed up by something unplaced; false when nothing can.
  bool push_up_passed(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    raised_.clear();
    for (int32_t i : part)
      if (offset_[i] < 0 && (least_[i] < level || (least_[i] == level && rank_[i] <= last_rank)))
        if (const int64_t least = least_rise(i, level); least == kFar || !raise(i, least)) return false;
    return settle();
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

  // Appends what may be placed next, in canonical order; false when everything is placed.
  bool find_choices(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    work_ += static_cast<int64_t>(part.size());
    int64_t roof = kFar, largest = 0;
    int32_t first = INT32_MAX, last = 0;
    for (int32_t i : part)
      if (offset_[i] < 0) {
        roof = std::min(roof, least_[i] + items_.sizes[i]);
        first = std::min(first, cliques_.first(i));
        last = std::max(last, cliques_.last(i));
      }
    if (roof == kFar) return false;
    for (int32_t c = first; c < last; ++c) largest = std::max(largest, cliques_[c].unplaced_bytes);
    int64_t most = capacity_;
    if (infers(kDominance)) most = std::min(most, roof - 1);
    if (infers(kNodeCut)) most = std::min(most, capacity_ - largest);
    const auto begin = static_cast<std::ptrdiff_t>(choices_.size());
    for (int32_t i : part)
      if (offset_[i] < 0 && least_[i] <= most && (least_[i] > level || (least_[i] == level && rank_[i] > last_rank)))
        choices_.push_back({least_[i], rank_[i], i});
    std::sort(choices_.begin() + begin, choices_.end());
    return true;
  }

  PackFit try_at(const std::vector<int32_t>& part, const Choice& choice, bool& raises_any) {
    const Choice at = choice;  // deeper choices may move it
    const size_t before = placed_.size();
    PackFit fit = PackFit::kImpossible;
    if (place(at.item, raises_any)) {
      if (infers(kDecompose) && comes_apart(cliques_, offset_, part, at.item)) {
        fit = solve_parts(unplaced_of(part), at.offset);
        number(part);
      } else {
        fit = solve(part, at.offset, at.rank);
      }
    }
    if (fit != PackFit::kFound) unplace_to(before);
    return fit;
  }

  std::vector<int32_t> unplaced_of(const std::vector<int32_t>& part) const {
    std::vector<int32_t> rest;
    for (int32_t i : part)
      if (offset_[i] < 0) rest.push_back(i);
    return rest;
  }

  const PackItems& items_;
  const std::span<const int64_t> steps_;
  const PackConflicts conflicts_;
  Cliques cliques_;
  const int64_t capacity_;
  const int32_t inferences_;
  const PackLimits& limits_;
  std::vector<int64_t> offset_, least_;
  std::vector<int32_t> rank_, raised_;
  std::vector<std::pair<int32_t, int64_t>> raises_;  // least offsets before, to be restored
  std::vector<FloorBefore> floors_;
  std::vector<Placed> placed_;
  std::vector<Choice> choices_;
  int which_ = 0;
  int64_t work_ = 0, nodes_ = 0, node_limit_ = 0;
  bool stopped_ = false;
};

}  // namespace

PackFitResult fit_canonically(const PackItems& items, std::span<const int64_t> steps, int64_t capacity, int32_t inferences,
                              const PackLimits& limits) {
  PackFitResult result;
  CanonicalSearch search(items, steps, capacity, inferences, limits);
  for (int64_t nodes = 2 * static_cast<int64_t>(items.n()); result.fit == PackFit::kStopped && search.may_go_on(); nodes *= 2)
    for (int which = 0; which < kRanks && result.fit == PackFit::kStopped && search.may_go_on(); ++which)
      result.fit = search.run(which, nodes);
  if (result.fit == PackFit::kFound) result.offsets = search.offsets();
  result.work = search.work();
  return result;
}

}  // namespace lowtide
