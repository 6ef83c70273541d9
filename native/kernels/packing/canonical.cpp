#include "kernels/packing/canonical.hpp"

#include <array>
#include <numeric>

#include "kernels/packing/state.hpp"

namespace lowtide {
namespace {

constexpr int kRanks = 3;

class CanonicalSearch {
 public:
  CanonicalSearch(const PackItems& items, std::span<const int64_t> steps, int64_t capacity, int32_t inferences,
                  const PackLimits& limits)
      : items_(items), steps_(steps), state_(items, capacity, (inferences & kFloors) != 0, (inferences & kLowestOnly) != 0),
        inferences_(inferences), limits_(limits), rank_(items.n(), 0) {}

  const std::vector<int64_t>& offsets() const { return state_.offsets(); }
  int64_t work() const { return state_.work(); }
  bool may_go_on() { return !stopped_ && work() < limits_.work; }

  // Searches once more from the start, for so many nodes.
  PackFit run(int which, int64_t nodes) {
    choices_.clear();
    which_ = which;
    node_limit_ = nodes_ + nodes;
    if (!state_.start()) return PackFit::kImpossible;
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

  bool infers(CanonicalInference what) const { return (inferences_ & what) != 0; }

  // Sorts a part by preference, and numbers its items so.
  void rank(std::vector<int32_t>& part) {
    const Cliques& cliques = state_.cliques();
    std::vector<std::pair<std::array<int64_t, 3>, int32_t>> keys;
    for (int32_t i : part) {
      int64_t most = 0;
      for (int32_t c = cliques.first(i); c < cliques.last(i); ++c) most = std::max(most, cliques[c].unplaced_bytes);
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

  // Solves every part of what is unplaced alone, small ones first.
  PackFit solve_parts(std::vector<int32_t> unplaced, int64_t level) {
    const size_t before = state_.n_placed();
    for (std::vector<int32_t>& part : state_.parts_of(std::move(unplaced))) {
      if (infers(kRankParts)) {
        rank(part);
      } else {
        std::sort(part.begin(), part.end(), [&](int32_t a, int32_t b) { return rank_[a] < rank_[b]; });
        number(part);
      }
      if (const PackFit fit = solve(part, level, -1); fit != PackFit::kFound) {
        state_.take_back_to(before);
        return fit;
      }
    }
    return PackFit::kFound;
  }

  // Solves a part whose next placement is not before (level, last_rank).
  PackFit solve(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    if (nodes_ >= node_limit_ || work() >= limits_.work) return PackFit::kStopped;
    if ((nodes_++ & 4095) == 0 && !limits_.go_on()) stopped_ = true;
    if (stopped_) return PackFit::kStopped;
    if (infers(kPushUp) && !state_.push_up_passed(part, level, last_rank, rank_)) return PackFit::kImpossible;
    const size_t begin = choices_.size();
    if (!find_choices(part, level, last_rank)) return PackFit::kFound;
    const size_t end = choices_.size();
    PackFit fit = PackFit::kImpossible;
    for (size_t k = begin; k < end && fit == PackFit::kImpossible; ++k) {
      fit = try_at(part, choices_[k]);
      if (infers(kNoAlternative) && !raised_any_) break;
    }
    choices_.resize(begin);
    return fit;
  }

  // Appends what may be placed next, in canonical order; false when everything is placed.
  bool find_choices(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    state_.add_work(static_cast<int64_t>(part.size()));
    const Cliques& cliques = state_.cliques();
    int64_t roof = kFar, largest = 0;
    int32_t first = INT32_MAX, last = 0;
    for (int32_t i : part)
      if (!state_.placed(i)) {
        roof = std::min(roof, state_.least(i) + items_.sizes[i]);
        first = std::min(first, cliques.first(i));
        last = std::max(last, cliques.last(i));
      }
    if (roof == kFar) return false;
    for (int32_t c = first; c < last; ++c) largest = std::max(largest, cliques[c].unplaced_bytes);
    int64_t most = state_.capacity();
    if (infers(kDominance)) most = std::min(most, roof - 1);
    if (infers(kNodeCut)) most = std::min(most, state_.capacity() - largest);
    const auto begin = static_cast<std::ptrdiff_t>(choices_.size());
    for (int32_t i : part)
      if (const int64_t at = state_.least(i); !state_.placed(i) && at <= most && (at > level || (at == level && rank_[i] > last_rank)))
        choices_.push_back({at, rank_[i], i});
    std::sort(choices_.begin() + begin, choices_.end());
    return true;
  }

  // Leaves in `raised_any_` whether the placement raised anything.
  PackFit try_at(const std::vector<int32_t>& part, const Choice& choice) {
    const Choice at = choice;  // deeper choices may move it
    const size_t before = state_.n_placed();
    PackFit fit = PackFit::kImpossible;
    const bool fits = state_.place(at.item), raised_any = state_.raised_any();
    if (fits) {
      if (infers(kDecompose) && state_.comes_apart(part, at.item)) {
        fit = solve_parts(state_.unplaced_of(part), at.offset);
        number(part);
      } else {
        fit = solve(part, at.offset, at.rank);
      }
    }
    if (fit != PackFit::kFound) state_.take_back_to(before);
    raised_any_ = raised_any;
    return fit;
  }

  const PackItems& items_;
  const std::span<const int64_t> steps_;
  PackState state_;
  const int32_t inferences_;
  const PackLimits& limits_;
  std::vector<int32_t> rank_;
  std::vector<Choice> choices_;
  int which_ = 0;
  int64_t nodes_ = 0, node_limit_ = 0;
  bool raised_any_ = false, stopped_ = false;
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
