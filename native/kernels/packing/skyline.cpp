#include "kernels/packing/skyline.hpp"

#include <queue>

namespace lowtide {
namespace {

// Runs of equal height from left to right, known by their first section.
class Runs {
 public:
  explicit Runs(int32_t n_sections) : end_(n_sections, 0), before_(n_sections, -1), height_(n_sections, 0) {
    end_[0] = n_sections;
    push(0);
  }

  struct Run {
    int32_t first, last;
    int64_t height;
  };

  Run lowest() {
    for (;; heap_.pop()) {
      const auto [height, first] = heap_.top();
      if (end_[first] > first && height_[first] == height) return {first, end_[first], height};
    }
  }

  // Sets the height of [first, last), which lies in the run.
  void build(const Run& run, int32_t first, int32_t last, int64_t height) {
    if (last < run.last) open(last, run.last, run.height, first);
    if (first > run.first) {
      end_[run.first] = first;
      open(first, last, height, run.first);
      push(run.first);
    } else {
      end_[first] = last;
      height_[first] = height;
      push(first);
    }
    join(first);
  }

  // Raises a run to its lower neighbor; false when it has none.
  bool raise(const Run& run) {
    const int64_t left = run.first > 0 ? height_[before_[run.first]] : INT64_MAX;
    const int64_t right = run.last < static_cast<int32_t>(end_.size()) ? height_[run.last] : INT64_MAX;
    if (left == INT64_MAX && right == INT64_MAX) return false;
    height_[run.first] = std::min(left, right);
    push(run.first);
    join(run.first);
    return true;
  }

 private:
  void push(int32_t first) { heap_.push({height_[first], first}); }

  void open(int32_t first, int32_t last, int64_t height, int32_t before) {
    end_[first] = last;
    height_[first] = height;
    before_[first] = before;
    if (last < static_cast<int32_t>(end_.size())) before_[last] = first;
    push(first);
  }

  // Joins a run with its neighbors of equal height.
  void join(int32_t first) {
    const int32_t next = end_[first];
    if (next < static_cast<int32_t>(end_.size()) && height_[next] == height_[first]) absorb(first, next);
    if (first > 0 && height_[before_[first]] == height_[first]) absorb(before_[first], first);
  }

  void absorb(int32_t first, int32_t next) {
    end_[first] = end_[next];
    end_[next] = 0;
    if (end_[first] < static_cast<int32_t>(end_.size())) before_[end_[first]] = first;
    push(first);
  }

  std::vector<int32_t> end_, before_;  // end_[s] <= s where no run starts
  std::vector<int64_t> height_;
  using Entry = std::pair<int64_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
};

}  // namespace

Skyline::Skyline(const PackItems& items)
    : items_(items), n_sections_(items.n_sections()), tree_(items.first, items.last) {}

std::vector<int64_t> Skyline::place(std::span<const int32_t> ranks) {
  const int32_t n = items_.n();
  std::vector<int64_t> offsets(n, 0);
  if (n == 0) return offsets;
  std::vector<int32_t> item_at(n);
  for (int32_t i = 0; i < n; ++i) item_at[ranks[i]] = i;
  tree_.set_ranks(ranks);
  Runs runs(n_sections_);
  for (int32_t left = n; left > 0;) {
    const Runs::Run run = runs.lowest();
    const int32_t rank = tree_.best_inside(run.first, run.last);
    if (rank < 0) {
      if (!runs.raise(run)) break;
      continue;
    }
    const int32_t item = item_at[rank];
    tree_.remove(item);
    --left;
    offsets[item] = aligned(run.height, items_.alignment[item]);
    runs.build(run, items_.first[item], items_.last[item], offsets[item] + items_.sizes[item]);
  }
  return offsets;
}

}  // namespace lowtide
