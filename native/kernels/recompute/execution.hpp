// What a program does when buffers are dropped and made again: the runs, the live bytes at each and the extra cost.
#pragma once
#include <functional>
#include <map>
#include <set>

#include "kernels/program/graph_view.hpp"
#include "kernels/program/in_place.hpp"

namespace lowtide {

// Moments of a base order of n ops: 2i lies between op i-1 and what is run again for op i, 2i + 1 is the first run of op
// i; "op n" is the end, which reads all outputs. At every moment named, buffers that the program uses later are kept and
// all others are dropped. Exceptions are listed: of those that are used later, a listed one is dropped; of the others, a
// listed one is kept. Python calls this Drops.
using Cuts = std::map<int32_t, std::set<int32_t>>;

// A base order with its costs and rules; what all executions share.
struct RecomputeProgram {
  const GraphView& graph;
  std::vector<int32_t> order;      // ops by place
  std::vector<double> cost;        // per op
  std::vector<int32_t> rerun_until;  // per op: the last moment for whose op it may run again; 0 for never
  int32_t space;                   // whose bytes count
  bool in_place;

  std::vector<int32_t> place{};       // per op
  std::vector<int64_t> counted{};     // per buffer: its bytes if they count
  std::vector<int32_t> last_use{};    // per buffer: moment of its last use in the base order, -1 where nothing uses it
  std::vector<uint8_t> remakeable{};  // per buffer: may be dropped and made again
  std::vector<int32_t> remake_until{};  // per buffer: the same for making it again with all that this takes
  std::vector<int32_t> outputs{};     // buffers that the end reads

  void derive();
  // Whether a buffer that is dropped at a moment can be made again when the base order uses it next.
  bool may_drop(int32_t buffer, int32_t moment) const;
  int32_t n_ops() const { return static_cast<int32_t>(order.size()); }
  int64_t counted_size(int32_t buffer) const { return counted[buffer]; }
};

struct Execution {
  std::vector<int32_t> runs;         // ops
  std::vector<int32_t> stage;        // per run: the place of the base op that it runs for; n at the end
  std::vector<int64_t> live;         // per run: bytes while it runs
  std::vector<int64_t> first_access; // per run, one more at the end: where its accesses begin
  std::vector<uint8_t> dies;         // per access (touched, then allocated): nothing uses this copy after this run
  std::vector<InPlacePair> pairs;    // taken, in run order
  std::vector<int64_t> first_pair;   // per run, one more at the end
  double extra_cost = 0;
  int64_t peak = 0;                  // the start included
};

// Plays a program under cuts: what is missing when an op needs it is run again right before, in base order, with what
// that needs in turn, and stays until its last use before the next cut that drops it. A copy is freed at its last use.
class RecomputeEvaluator {
 public:
  explicit RecomputeEvaluator(const RecomputeProgram& program);

  const Execution& run(const Cuts& cuts);
  // Plays runs as they are: first runs in base order, each with what it reads made before it.
  const Execution& replay(std::span<const int32_t> runs);
  const Execution& last() const { return result_; }
  const RecomputeProgram& program() const { return program_; }
  void add_work(int64_t accesses) { work_ += accesses; }
  int64_t work() const { return work_; }  // accesses played so far

  // `go_on` is asked now and then by whoever plays much; null ends that.
  void watch(const std::function<bool()>* go_on) { go_on_ = go_on, asked_at_ = work_; }
  // Whether to play on, with `beside` accesses played that were not added yet.
  bool may_go_on(int64_t beside = 0) {
    if (go_on_ == nullptr || work_ + beside - asked_at_ < kAccessesPerPoll) return true;
    asked_at_ = work_ + beside;
    return (*go_on_)();
  }

 private:
  bool available(int32_t buffer) const {
    return !program_.remakeable[buffer] ||
           (!gone_[buffer] && (stamp_[buffer] >= latest_ || program_.last_use[buffer] >= latest_));
  }
  void pass_cut(int32_t moment, const std::set<int32_t>& listed);
  void bring_back(std::span<const int32_t> needed, int32_t stage);
  void emit(int32_t op, int32_t stage);
  void find_deaths();
  void count_bytes();

  const RecomputeProgram& program_;
  InPlaceMatcher matcher_;
  Execution result_;
  std::vector<uint8_t> gone_, needed_;
  std::vector<int32_t> stamp_;   // per buffer: moment it was made or kept against the rule
  std::vector<int32_t> marked_;  // per op: the stage that collected it last
  std::vector<int32_t> chain_;
  int32_t latest_ = -1;          // the last cut that was passed
  int64_t work_ = 0, asked_at_ = 0;
  const std::function<bool()>* go_on_ = nullptr;
  static constexpr int64_t kAccessesPerPoll = 1 << 16;
};

}  // namespace lowtide
