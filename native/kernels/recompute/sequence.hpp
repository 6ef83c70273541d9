// Plans as sequences of runs: what idles at one run is traded against running it again later, one run after the other.
#pragma once
#include "kernels/recompute/execution.hpp"

namespace lowtide {

// At which run over the budget to trade next.
enum class Pick : uint8_t { kWorst = 0, kFirst = 1, kLast = 2 };

class RecomputeSequence {
 public:
  // `weights` are costs per op that the trades go by; they may differ from what running an op again really costs.
  RecomputeSequence(RecomputeEvaluator& evaluator, std::span<const double> weights, int64_t budget, int64_t max_work);

  // Trades until every run fits. At each picked run, all that is resident may take the budget less `reserve`; what idles
  // there and is not kept runs again where it is missed, in base order, and stays until its last use. Where a sequence
  // comes again, what runs again for the same first run is kept, so that others must go. False where that does not help
  // either, what runs again would cost more than `max_cost`, runs are far too many, or the work is used up.
  bool settle(std::vector<int32_t>& runs, Pick pick, int64_t reserve, double max_cost);

  // From runs that fit: leaves out reruns that the budget can spare, the dearest first.
  void trim(std::vector<int32_t>& runs);

 private:
  void trade(std::vector<int32_t>& runs, size_t at, int64_t capacity, bool keep_stage);
  void note_uses(const Execution& execution, size_t at);
  void bring_back(std::span<const int32_t> needed, std::vector<int32_t>& runs);
  void make(int32_t op, std::vector<int32_t>& runs);
  bool trim_once(std::vector<int32_t>& runs);
  void note_copies(const Execution& execution);
  int64_t access_of(const Execution& execution, int32_t run, int32_t buffer) const;
  void collect_spared(const Execution& execution, int32_t rerun);
  bool serves_spared_alone(const Execution& execution, int32_t run) const;
  bool may_spare(const Execution& execution, int32_t rerun);
  std::vector<size_t> used_runs(std::span<const int32_t> runs) const;
  bool within_work() { return evaluator_.work() - start_ < max_work_ && evaluator_.may_go_on(); }

  RecomputeEvaluator& evaluator_;
  const RecomputeProgram& program_;
  const std::span<const double> weights_;
  const int64_t budget_, max_work_, start_;
  std::vector<int32_t> held_, next_;     // per buffer: the run that leaves a copy, -1 for none; the next that uses it
  std::vector<uint8_t> exists_, there_;  // per buffer: made before a run; resident as the sequence is rewritten
  std::vector<int32_t> chain_, marked_;
  std::vector<int32_t> before_, after_;  // per access: the run that accesses the same buffer before; that uses this copy next
  std::vector<int32_t> maker_;           // per access: the run that made the copy, -1 for none
  std::vector<int32_t> spared_, is_spared_;  // runs left out, the last first; per run: the round in which it is one of them
  std::vector<int64_t> changes_;         // per run: by how many bytes more are live than at the run before
  int32_t round_ = 0;
};

}  // namespace lowtide
