// The order of all runs and what runs again, searched together: exact, for graphs of some tens of ops.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace lowtide {

constexpr int32_t kMostStateOps = 64, kMostStateItems = 128;

// A set of items.
struct Items {
  std::array<uint64_t, kMostStateItems / 64> words{};

  bool has(int32_t item) const { return words[item / 64] >> (item % 64) & 1; }
  void add(int32_t item) { words[item / 64] |= uint64_t{1} << (item % 64); }
  void drop(int32_t item) { words[item / 64] &= ~(uint64_t{1} << (item % 64)); }
  bool operator==(const Items&) const = default;
};

// An item is one version of a buffer that some op or the end needs; of the items of a buffer one at most is resident.
struct StatesOp {
  // A read item whose bytes a written buffer may take over, and what the run leaves in the item's place, -1 for nothing.
  struct Pair {
    int32_t read, written, left;
  };
  std::vector<int32_t> before;    // ops that must have run for the first time
  std::vector<int32_t> needs;     // items that must be resident
  std::vector<int32_t> leaves;    // items that are resident afterwards
  std::vector<int32_t> replaces;  // other items of the buffers it writes
  std::vector<int32_t> own;       // items of the buffers it allocates, of which none may be there yet
  std::vector<Pair> pairs;
  int64_t bytes = 0;              // of what it allocates, and its scratch
  double cost = 0;
  bool again = false;             // whether it may run again
};

struct StatesProblem {
  std::vector<StatesOp> ops;
  std::vector<int64_t> item_bytes;        // what counts in the memory space
  std::vector<uint8_t> may_go;            // per item: whether its buffer may be freed
  std::vector<int32_t> at_start, at_end;  // items
  int64_t start_bytes = 0;                // of all that is there before the first op
  int64_t always_bytes = 0;               // of what stays and is no item
};

enum class StatesEnd : int32_t { kFound = 0, kImpossible = 1, kStopped = 2 };

struct StatesResult {
  StatesEnd end = StatesEnd::kStopped;
  std::vector<int32_t> runs;  // when found
  double bound = 0;           // no plan costs less
  int64_t states = 0, work = 0;
};

// Finds the runs of least extra cost within a budget, over all orders that `before` allows and any number of reruns.
// A* over (ops that ran, resident items). Rules that lose no plan:
//   what nothing can need any more is freed at once, everything else only right before a run that would not fit else,
//   no more than that run needs to fit, by frees and by in-place pairs;
//   an op runs again only if it leaves something that is missing;
//   a state is left where another one that ran the same ops holds as much for no more cost;
//   what must run again to bring back what is missing is counted ahead, and a state is left where it cannot come back.
// `max_work` counts successors and frees tried; `go_on` is asked now and then.
StatesResult search_states(const StatesProblem& problem, int64_t budget, int64_t max_work,
                           const std::function<bool()>& go_on);

}  // namespace lowtide
