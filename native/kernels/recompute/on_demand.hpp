// A program run in its base order within a budget: what is in the way goes, what is missing is made again when needed.
#pragma once
#include "kernels/recompute/execution.hpp"

namespace lowtide {

// How to choose what goes: least cost of making it again, by size and by how long nothing needs it, each to a power.
struct EvictionRule {
  double size_power = 1, distance_power = 1;
  bool hardest_first = false;  // which missing operand is made first: the one that needs most bytes, or the earliest
};

// After Kirisame et al., "Dynamic Tensor Rematerialization" (2021), with the distance to the next use in the base order in
// place of the time since the last.
class RecomputeOnDemand {
 public:
  RecomputeOnDemand(RecomputeEvaluator& evaluator, int64_t budget, int64_t max_work);

  // The runs; none where the budget is not met that way, or the work is used up. While an operand is made, the others
  // stay; only if nothing else is left they go too, those needed last first.
  std::vector<int32_t> run(const EvictionRule& rule);

 private:
  struct Candidate {
    double rank;
    int32_t buffer;
    bool is_exact;
    bool operator<(const Candidate& other) const {  // the top of a heap: least rank, lowest buffer
      return rank != other.rank ? rank > other.rank : buffer > other.buffer;
    }
  };

  bool play();
  bool run_op(int32_t op);
  bool gather(std::span<const int32_t> operands);
  void leave_frame();
  bool make_room(int64_t bytes);
  int64_t take_over(int32_t op, bool also_needed);
  // Of an evictable buffer: by how little it is worth its bytes.
  double rank(int32_t buffer, double cost) const {
    const int32_t next = next_use_[buffer];
    const double distance = next < 0 ? unused_weight_ : distance_weight_[next - place_ + 1];
    return price_[buffer] * cost / (size_weight_[buffer] * distance);
  }
  double chain_cost(int32_t buffer);
  bool may_go(int32_t buffer) const;
  // The same for evictable buffers.
  bool may_evict(int32_t buffer) const {
    return there_[buffer] && 2 * next_use_[buffer] + 1 <= program_.remake_until[buffer];
  }
  void lose_what_nothing_needs();
  void mark_needed();
  void put(int32_t buffer, bool there);
  void note_next_use(int32_t buffer);
  void estimate_needs();
  bool within_work() { return work_ <= max_work_ && evaluator_.may_go_on(work_); }

  RecomputeEvaluator& evaluator_;
  const RecomputeProgram& program_;
  const GraphView& graph_;
  const int64_t budget_, max_work_;
  EvictionRule rule_;
  std::vector<int32_t> evictable_;  // buffers with bytes that can be made again
  std::vector<int32_t> losable_;    // buffers that go for good
  std::vector<double> size_weight_, distance_weight_;  // per buffer and per distance: its power by the rule
  double unused_weight_ = 0;        // for buffers that the base order does not use any more
  std::vector<int32_t> runs_;
  std::vector<uint8_t> there_, needed_;
  std::vector<int32_t> next_use_;  // per buffer: the place of its next use in the base order, -1 for none
  std::vector<double> price_;      // per buffer: what making it again is taken to cost more
  std::vector<uint8_t> was_missing_;  // per buffer: whether a run found it missing
  std::vector<int64_t> need_;      // per op: an estimate of the bytes that making what it allocates takes
  std::vector<std::vector<int32_t>> frames_;  // operands of the ops that are under way, outermost first
  std::vector<int32_t> pinned_;    // per buffer: in how many frames it is
  std::vector<Candidate> candidates_;
  std::vector<int32_t> stack_, visited_, taken_over_;
  int64_t live_ = 0, work_ = 0;
  int32_t place_ = 0, round_ = 0;
};

}  // namespace lowtide
