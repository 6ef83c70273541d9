// Which buffers to drop, chosen one after the other: most bytes for the least cost at the worst moment.
#pragma once
#include "kernels/recompute/trials.hpp"

namespace lowtide {

class RecomputeGreedy {
 public:
  RecomputeGreedy(RecomputeEvaluator& evaluator, int64_t budget, int64_t max_work);

  // Drops more until the peak is within the budget. Returns false if no drop helps, the extra cost exceeds `max_cost`, or
  // the work is used up.
  bool fit(Cuts& cuts, double max_cost);
  // From the cuts that `fit` ended with: keeps again what need not be dropped, the most expensive first.
  void trim(Cuts& cuts);

 private:
  struct Candidate {
    int32_t buffer, moment;
    int64_t size;
    double cost;
  };
  std::vector<Candidate> candidates(size_t run);
  void note_uses(size_t first, size_t past);
  double chain_cost(int32_t buffer, int32_t stage);
  bool is_listed_when_dropped(const Candidate& candidate) const {
    return program_.last_use[candidate.buffer] >= candidate.moment;
  }
  void drop(Cuts& cuts, const Candidate& candidate);
  // The standing after a drop.
  Standing dropped(const Cuts& cuts, const Candidate& candidate);
  std::vector<int32_t> held_against_rule(int32_t moment);
  const std::vector<int32_t>& held_at(int32_t moment);
  bool within_work() { return evaluator_.work() - start_ < max_work_ && evaluator_.may_go_on(); }

  RecomputeEvaluator& evaluator_;
  const RecomputeProgram& program_;
  RecomputeTrials trials_;
  const Execution& execution_;           // of the present cuts
  const int64_t budget_, max_work_, start_;
  std::vector<int32_t> before_, after_;  // per buffer: held before a run, next use after it, -1 for neither
  std::vector<int32_t> visited_;
  std::vector<int32_t> stack_;
  std::set<std::pair<int32_t, int32_t>> rerun_;   // (op, stage) of the present execution
  std::set<std::pair<int32_t, int32_t>> banned_;  // (moment, buffer) that did not help
  std::map<int32_t, std::vector<int32_t>> held_;  // per moment without a cut: buffers held against the rule
  const std::vector<int32_t> nothing_;
  int32_t round_ = 0;
};

}  // namespace lowtide
