// Tries single changes of cuts without playing the whole program.
#pragma once
#include "kernels/recompute/execution.hpp"

namespace lowtide {

struct Standing {
  double cost = 0;     // extra cost
  int64_t excess = 0;  // bytes over the budget, over all runs
  int64_t peak = 0;
};

// Listing one buffer at one moment, or no longer listing it, changes the runs of few stages. Only these are played: from
// the moment on, those that access a buffer that may be available in one execution and not in the other. The bytes of
// the other runs change where a copy of an accessed buffer lives longer or shorter. Results equal those of a full
// execution. O(changed accesses + runs between the first and the last change) per trial.
class RecomputeTrials {
 public:
  RecomputeTrials(RecomputeEvaluator& evaluator, int64_t budget);

  // Plays cuts. Trials change these from now on.
  const Standing& begin(const Cuts& cuts);
  const Standing& standing() const { return standing_; }
  const Execution& base() const { return base_; }
  // The standing after a buffer is listed at a moment, or no longer listed if it is. A moment without a cut gets one
  // that lists `held`, the buffers that are held across the moment against the rule.
  Standing toggled(int32_t moment, int32_t buffer, std::span<const int32_t> held);
  // Lists a buffer at the moment of a cut, or no longer lists it. Of `base`, only runs, stages and live bytes follow.
  const Standing& toggle(int32_t moment, int32_t buffer);

 private:
  struct Rerun {
    int32_t stage, op;
  };
  // One copy of a buffer: from the run that makes it to its last use, as keys.
  struct Copy {
    int64_t first, last;
    bool operator==(const Copy&) const = default;
  };
  struct Access {
    int64_t key;
    bool makes;
  };
  struct Changed {
    int32_t buffer;
    std::vector<Copy> before, now;
  };

  struct NewRun {
    size_t before;  // run of the base execution
    int64_t live, taken_over;
  };

  // Runs are ordered by stage, then by place.
  int64_t key_of(int32_t stage, int32_t op) const {
    return int64_t{stage} * (program_.n_ops() + 1) + program_.place[op];
  }
  size_t index_of(int64_t key) const;  // of the first run of the base execution at the key or later
  std::span<const int32_t> chain(int32_t stage) const;

  void sum_up();
  Standing play_toggled(int32_t moment, int32_t buffer, bool keeps);
  void find_changed_runs(int32_t first_stage, int32_t buffer);
  void play(int32_t stage);
  void apply(const Rerun& rerun, bool adds);
  void flip_changed_runs();
  void await(int32_t buffer, int32_t first_stage);
  bool available(int32_t buffer, int32_t stage);
  bool killed(int32_t buffer, int32_t after, int32_t until) const;

  std::vector<Copy> copies(int32_t buffer);
  void find_changed_copies();
  double cost_now() const;
  Standing standing_now();
  void change(const Copy& copy, int64_t bytes);
  int64_t bytes_before(size_t run) const;
  int64_t taken_over(int64_t key, int32_t op);
  int64_t bytes_at(int64_t key, int32_t op);
  void keep_changed_runs();

  RecomputeEvaluator& evaluator_;
  const RecomputeProgram& program_;
  const int64_t budget_;
  InPlaceMatcher matcher_;
  int64_t bytes_at_start_ = 0, bytes_at_end_ = 0;

  // The base execution.
  Execution base_;
  Standing standing_;
  std::vector<int64_t> taken_over_;                   // per run: bytes of results in the place of operands
  std::vector<size_t> begin_;                         // per stage and two more: its first run
  std::vector<int64_t> peak_until_, peak_from_;       // per run and one more: over the runs before it, from it on
  std::vector<int64_t> excess_until_;                 // per run and one more
  std::vector<size_t> reruns_;                        // runs that are not first runs
  std::vector<double> cost_until_;                    // per entry of `reruns_`: of those before it

  // The present execution: that of the base, or of a trial.
  std::vector<std::vector<int32_t>> rerun_stages_;    // per op, ascending
  std::vector<int32_t> moments_;                      // of all cuts, ascending
  std::vector<std::vector<int32_t>> listed_;          // per buffer: moments that list it, ascending

  // One trial.
  std::vector<Rerun> added_, removed_;
  std::vector<Changed> changed_;
  std::vector<NewRun> new_runs_;                      // per entry of `added_`
  std::vector<size_t> gone_;                          // runs of `removed_`
  std::vector<std::pair<size_t, int64_t>> rematched_; // runs with other bytes in the place of operands
  std::set<int32_t> stages_;                          // to be played
  std::vector<int32_t> chain_;
  std::vector<int64_t> seen_op_, seen_buffer_;
  std::vector<int32_t> changed_at_;                   // per buffer: its entry of `changed_`, or -1
  std::vector<int64_t> change_;                       // per run and one more: of live bytes from it on
  std::vector<Access> accesses_;
  std::vector<InPlacePair> pairs_;
  size_t low_ = 0, high_ = 0;                         // the runs whose bytes change
  int64_t round_ = 0, work_ = 0;
};

}  // namespace lowtide
