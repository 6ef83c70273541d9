// Why no order stays within a budget, as a log that plain code can replay: dependencies and cases.
#pragma once
#include <array>

#include "kernels/program/precedence.hpp"

namespace lowtide {

// One line of the log. Lines hold under all lines before them that their case has not left.
struct RefutationLine {
  enum Kind : int32_t {
    kNeed = 0,    // op; earlier, later: `op`, one of both, needs more than the budget if `later` runs before `earlier`
    kOver = 1,    // op: it needs more than the budget; ends a case
    kCycle = 2,   // dependencies close a cycle; ends a case
    kEither = 3,  // one, other: the case that `one` runs before `other` follows; where it ends, the opposite one follows
    // How many rows of `kOp` follow: after what runs first until here, these ops in turn may run next; before what runs last
    // until here, these ops may run, the last of them first.
    kFirst = 4, kLast = 5,
    // How many rows of `kOp` follow: each case that one of these ops runs right after what runs first, or right before what
    // runs last, in turn.
    kNext = 6, kPrevious = 7,
    kOp = 8,      // op
  };
  std::array<int32_t, 4> values;  // kind, then what it is about; -1 where there is nothing
};

// Returns a log that refutes a budget of one memory space, or nothing where none is found with about `max_work` arcs
// looked at. Deduces dependencies (see `tighten`); where that ends, the two ops whose order decides most are taken one
// way round and then the other. Where none is found so, sets are walked (see `refute_by_walk`), with as much work again.
// `worst_first` are all ops, those that are likeliest to exceed the budget first.
std::vector<RefutationLine> refute(const GraphView& graph, int32_t space, bool in_place, int64_t budget,
                                   std::span<const int32_t> worst_first, int64_t max_work,
                                   const std::function<bool()>& go_on);

}  // namespace lowtide
