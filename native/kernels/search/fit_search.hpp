// An order within a budget, or the proof that there is none.
#pragma once
#include <functional>

#include "kernels/search/execution_state.hpp"

namespace lowtide {

enum class Fit : int32_t { kFound = 0, kImpossible = 1, kStopped = 2 };

struct FitResult {
  Fit fit = Fit::kStopped;
  std::vector<int32_t> order;            // when found
  Bytes next_budget;                     // when impossible: per space, the least figure above the budget that was met
  int64_t states = 0, flows = 0, edges = 0, work = 0;
};

struct FitLimits {
  int64_t work;                          // arcs and ready ops looked at
  std::function<bool()> go_on;           // asked now and then; false stops
};

// By turns, with growing limits: tightens the dependencies for the budget (see precedence.hpp), and searches the executed
// sets depth first, each at most once, forward and backward; each direction builds on what the other has settled.
// Rules that lose no solution, all from the submodularity of live bytes over closed sets:
//   safe closure: a ready op that fits and does not raise live bytes is taken at once;
//   valley commit: when the least closed set between the last settled set and the present one is reached, everything
//   before it is settled;
//   cut ops: an op comparable with all others leads to a set that every order passes, which is settled;
//   doomed sets: a set after which some critical op cannot run within the budget any more is left (a minimum cut).
// `preference` (an order of all ops) breaks ties.
FitResult find_fit(const GraphView& graph, bool in_place, const Bytes& budget, std::span<const int32_t> preference,
                   const FitLimits& limits);

}  // namespace lowtide
