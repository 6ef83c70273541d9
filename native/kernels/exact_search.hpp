// Depth-first search over executed sets: an order within a budget, or the proof that there is none.
#pragma once
#include <unordered_map>

#include "kernels/graph_view.hpp"
#include "kernels/in_place.hpp"

namespace lowtide {

enum class FitStatus : int32_t { kFits = 0, kImpossible = 1, kStopped = 2 };

struct FitResult {
  FitStatus status = FitStatus::kStopped;
  std::vector<int32_t> order;   // when it fits
  int64_t next_budget = 0;      // when impossible: no order needs less than this
  int64_t states = 0, flows = 0;
};

// Searches for an order whose live bytes in one memory space never exceed a budget.
//
// Sets of executed ops are visited at most once. Two rules cut the search without losing a solution, both from the
// submodularity of live bytes over closed sets:
//   safe closure: a ready op that fits and does not raise live bytes runs at once;
//   valley commit: a reached set whose live bytes are the least over all closed sets between the last committed set and
//   itself is committed, and alternatives before it are dropped. A minimum cut decides.
// In-place pairs only help more the later an op runs, so both rules hold with them.
class ExactSearch {
 public:
  ExactSearch(const GraphView& graph, int32_t space, bool in_place);

  // `preference` ranks ops: among equals the one earlier in it is tried first.
  FitResult fit(int64_t budget, std::span<const int32_t> preference, int64_t max_states);

 private:
  struct Frame {
    size_t path_length, first_candidate, next_candidate;
  };

  void reset();
  int64_t peak_of(int32_t op);
  int64_t net_of(int32_t op) const;
  void run(int32_t op);
  void undo();
  void close(int64_t budget);
  bool visit();
  void push_frame(int64_t budget);
  bool try_commit(int64_t budget);
  std::vector<uint8_t> least_valley(int64_t& least);

  const GraphView& graph_;
  const int32_t space_;
  const bool in_place_;
  InPlaceMatcher matcher_;
  std::vector<InPlacePair> taken_;
  std::vector<int64_t> allocated_;   // per op: bytes it allocates here
  std::vector<int32_t> rank_;
  int64_t start_live_ = 0;

  int64_t live_ = 0;
  std::vector<int32_t> waiting_, uses_left_, ready_, ready_place_, path_;
  std::vector<uint8_t> executed_;
  std::vector<uint64_t> bits_;
  uint64_t hash_ = 0;
  std::vector<uint64_t> keys_;

  size_t committed_ = 0;             // length of the path that is never undone
  int64_t committed_live_ = 0;
  std::vector<Frame> frames_;
  std::vector<int32_t> candidates_;
  std::unordered_multimap<uint64_t, size_t> visited_;  // hash -> place of the set in stored_
  std::vector<uint64_t> stored_;
  int64_t exceeded_ = 0;             // least peak that was turned away
  int64_t flows_ = 0;
  size_t failed_commit_length_ = 0;
};

}  // namespace lowtide
