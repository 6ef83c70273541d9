#include "kernels/packing/exact.hpp"

#include "kernels/packing/by_pairs.hpp"
#include "kernels/packing/rank.hpp"
#include "kernels/packing/state.hpp"

namespace lowtide {
namespace {

class Search {
 public:
  Search(const PackItems& items, int64_t capacity) : items_(items), state_(items, capacity), rank_(items.n(), 0) {}

  bool complete() const { return state_.conflicts().only_above_or_below; }
  const std::vector<int64_t>& offsets() const { return state_.offsets(); }
  int64_t work() const { return state_.work(); }
  PackFit run(int which, int restart, int64_t placements, int64_t work_limit, const std::function<bool()>& go_on) {
    limit_ = placements_ + placements;
    work_limit_ = work_limit;
    go_on_ = &go_on;
    which_ = which;
    restart_ = restart;
    if (!state_.start()) return PackFit::kImpossible;
    std::vector<int32_t> free_items;
    for (int32_t i = 0; i < items_.n(); ++i)
      if (!state_.placed(i)) free_items.push_back(i);
    return free_items.empty() ? PackFit::kFound : solve_parts(free_items, 0);
  }

 private:
  // Ranks the items of a part by what remains unplaced. Restarts lean towards items of cliques that failed often, and vary.
  void rank(std::vector<int32_t>& part) {
    const Cliques& cliques = state_.cliques();
    std::vector<Rank> keys(part.size());
    for (size_t k = 0; k < part.size(); ++k) {
      const int32_t i = part[k];
      int64_t most = 0;
      double failures = 0;
      for (int32_t c = cliques.first(i); c < cliques.last(i); ++c)
        if (cliques.holds(c, i)) {
          most = std::max(most, cliques[c].unplaced_bytes);
          failures = std::max(failures, static_cast<double>(cliques[c].failures));
        }
      const double width = items_.last[i] - items_.first[i], area = width * static_cast<double>(items_.sizes[i]);
      const double factor = restart_ == 0 ? 1.0
                                          : 1.0 + kVariation * noise(restart_, i) +
                                                kLearning * failures * cliques.n() /
                                                    static_cast<double>(state_.failures() + 1);
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
    const size_t before = state_.n_placed();
    for (std::vector<int32_t>& part : state_.parts_of(std::move(unplaced))) {
      rank(part);
      const PackFit fit = solve(part, level, -1);
      if (fit != PackFit::kFound) {
        state_.take_back_to(before);
        return fit;
      }
    }
    return PackFit::kFound;
  }

  PackFit solve(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    if (placements_ >= limit_ || state_.work() >= work_limit_) return PackFit::kStopped;
    if ((placements_ & 4095) == 0 && !(*go_on_)()) {
      limit_ = 0;
      return PackFit::kStopped;
    }
    state_.add_work(static_cast<int64_t>(part.size()));
    return state_.push_up_passed(part, level, last_rank, rank_) ? choose(part, level, last_rank) : PackFit::kImpossible;
  }

  bool has_passed(int32_t item, int64_t level, int32_t last_rank) const {
    return state_.least(item) < level || (state_.least(item) == level && rank_[item] < last_rank);
  }

  PackFit choose(const std::vector<int32_t>& part, int64_t level, int32_t last_rank) {
    const Cliques& cliques = state_.cliques();
    int64_t roof = kFar, largest = 0;
    int32_t first = INT32_MAX, last = 0;
    for (int32_t i : part)
      if (!state_.placed(i)) {
        if (!may_rise(i, level))
          return has_passed(i, level, last_rank) ? PackFit::kImpossible : try_at(part, i, level, last_rank);
        roof = std::min(roof, state_.least(i) + items_.sizes[i]);
        first = std::min(first, cliques.first(i));
        last = std::max(last, cliques.last(i));
      }
    if (roof == kFar) return PackFit::kFound;
    for (int32_t c = first; c < last; ++c) largest = std::max(largest, cliques[c].unplaced_bytes);
    const int64_t most = std::min(roof - 1, state_.capacity() - largest);
    struct Choice {
      int64_t offset;
      int32_t rank, item;
      auto operator<=>(const Choice&) const = default;
    };
    std::vector<Choice> choices;
    for (int32_t i : part)
      if (!state_.placed(i) && state_.least(i) <= most && !has_passed(i, level, last_rank))
        choices.push_back({state_.least(i), rank_[i], i});
    std::sort(choices.begin(), choices.end());
    for (const Choice& choice : choices)
      if (const PackFit fit = try_at(part, choice.item, choice.offset, choice.rank); fit != PackFit::kImpossible) return fit;
    return PackFit::kImpossible;
  }

  // Places an item at its least offset and solves the rest, whose next placement is not before (level, last_rank).
  PackFit try_at(const std::vector<int32_t>& part, int32_t item, int64_t level, int32_t last_rank) {
    const size_t before = state_.n_placed();
    ++placements_;
    PackFit fit = PackFit::kImpossible;
    if (state_.place(item)) {
      const bool splits = items_.apart.offsets.empty() && state_.comes_apart(part, item);
      fit = splits ? solve_parts(state_.unplaced_of(part), level) : solve(part, level, last_rank);
      if (fit == PackFit::kImpossible) rerank(part);
    }
    if (fit == PackFit::kImpossible) state_.take_back_to(before);
    return fit;
  }

  void rerank(const std::vector<int32_t>& part) {
    for (size_t k = 0; k < part.size(); ++k) rank_[part[k]] = static_cast<int32_t>(k);
  }

  // Whether something unplaced can still come below the item's top and so push it up.
  bool may_rise(int32_t item, int64_t level) {
    const int64_t top = state_.least(item) + items_.sizes[item];
    for (const Conflict& conflict : state_.conflicts()[item]) {
      state_.add_work(1);
      if (!state_.placed(conflict.other) && std::max(state_.least(conflict.other), level) < top) return true;
    }
    return false;
  }

  const PackItems& items_;
  PackState state_;
  std::vector<int32_t> rank_;
  int which_ = 0, restart_ = 0;
  int64_t placements_ = 0, limit_ = 0, work_limit_ = 0;
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
