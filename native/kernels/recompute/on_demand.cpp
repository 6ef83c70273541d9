#include "kernels/recompute/on_demand.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lowtide {
namespace {

constexpr size_t kMostRunsPerOp = 12;
constexpr size_t kLongestChain = 64;  // ops of a chain that are counted
constexpr int kMostRounds = 3;        // attempts to have all operands there at once
constexpr int kMostAttempts = 30;     // plays, each with higher prices for what was missing where the last one ended
constexpr double kDearer = 3;
constexpr int32_t kNone = -1;
constexpr double kLost = std::numeric_limits<double>::infinity();

}  // namespace

RecomputeOnDemand::RecomputeOnDemand(RecomputeEvaluator& evaluator, int64_t budget, int64_t max_work)
    : evaluator_(evaluator), program_(evaluator.program()), graph_(program_.graph), budget_(budget),
      max_work_(max_work) {
  for (int32_t b = 0; b < graph_.n_buffers; ++b) {
    if (program_.remakeable[b]) {
      if (program_.counted_size(b) > 0) evictable_.push_back(b);
    } else if (graph_.freeable(b)) {
      losable_.push_back(b);
    }
  }
  estimate_needs();
}

// As if the program were a tree whose operands are made one after the other, the one that needs most first.
void RecomputeOnDemand::estimate_needs() {
  need_.assign(graph_.n_ops, 0);
  std::vector<std::pair<int64_t, int64_t>> operands;  // what making one needs beyond what it leaves, and what it leaves
  for (int32_t op : program_.order) {
    operands.clear();
    for (int32_t b : graph_.touches[op]) {
      if (!program_.remakeable[b]) continue;
      const int64_t size = program_.counted_size(b);
      operands.push_back({need_[graph_.producers[b]] - size, size});
    }
    std::sort(operands.rbegin(), operands.rend());
    int64_t held = 0, most = 0;
    for (const auto& [beyond, size] : operands) {
      most = std::max(most, held + beyond + size);
      held += size;
    }
    for (int32_t b : graph_.allocates[op]) held += program_.counted_size(b);
    need_[op] = std::max(most, held + graph_.scratch[int64_t{op} * graph_.n_spaces + program_.space]);
  }
}

std::vector<int32_t> RecomputeOnDemand::run(const EvictionRule& rule) {
  rule_ = rule;
  price_.assign(graph_.n_buffers, 1);
  size_weight_.assign(graph_.n_buffers, 0);
  for (int32_t b : evictable_)
    size_weight_[b] = std::pow(static_cast<double>(program_.counted_size(b)), rule.size_power);
  distance_weight_.resize(program_.n_ops() + 2);
  for (size_t d = 0; d < distance_weight_.size(); ++d)
    distance_weight_[d] = std::pow(static_cast<double>(d), rule.distance_power);
  unused_weight_ = std::pow(4.0 * program_.n_ops(), rule.distance_power);
  work_ = 0;
  bool fits = false;
  for (int attempt = 0; !fits && attempt < kMostAttempts && within_work(); ++attempt) {
    fits = play();
    if (fits) break;
    for (const auto& frame : frames_)
      for (int32_t b : frame)
        if (was_missing_[b]) price_[b] *= kDearer;
  }
  evaluator_.add_work(work_);
  return fits ? std::move(runs_) : std::vector<int32_t>();
}

bool RecomputeOnDemand::play() {
  runs_.clear();
  frames_.clear();
  live_ = 0;
  was_missing_.assign(graph_.n_buffers, 0);
  there_.assign(graph_.n_buffers, 0);
  pinned_.assign(graph_.n_buffers, 0);
  visited_.assign(graph_.n_ops, 0);
  round_ = 0;
  next_use_.assign(graph_.n_buffers, kNone);
  place_ = -1;
  for (int32_t b = 0; b < graph_.n_buffers; ++b) {
    note_next_use(b);
    if (graph_.lifetimes[b] == kInput || (graph_.lifetimes[b] == kDonated && !graph_.users[b].empty()) ||
        graph_.lifetimes[b] == kPersistent)
      put(b, true);
  }
  bool fits = live_ <= budget_;
  for (place_ = 0; fits && place_ < program_.n_ops(); ++place_) {
    const int32_t op = program_.order[place_];
    for (int32_t b : graph_.touches[op]) note_next_use(b);
    fits = run_op(op);
    lose_what_nothing_needs();
  }
  return fits && gather(program_.outputs);
}

void RecomputeOnDemand::note_next_use(int32_t buffer) {
  int32_t next = graph_.lifetimes[buffer] == kOutput && graph_.producers[buffer] >= 0 ? program_.n_ops() : kNone;
  for (int32_t user : graph_.users[buffer]) {
    const int32_t place = program_.place[user];
    if (place > place_ && (next == kNone || place < next)) next = place;
  }
  next_use_[buffer] = next;
}

void RecomputeOnDemand::put(int32_t buffer, bool there) {
  if (there_[buffer] == there) return;
  there_[buffer] = there;
  live_ += there ? program_.counted_size(buffer) : -program_.counted_size(buffer);
}

bool RecomputeOnDemand::run_op(int32_t op) {
  if (runs_.size() > kMostRunsPerOp * program_.order.size() || !within_work()) return false;
  if (!gather(graph_.touches[op])) return false;
  int64_t bytes = graph_.scratch[int64_t{op} * graph_.n_spaces + program_.space];
  for (int32_t b : graph_.allocates[op]) {
    put(b, false);
    bytes += program_.counted_size(b);
  }
  taken_over_.clear();
  bytes -= take_over(op, false);
  if (!make_room(bytes)) bytes -= take_over(op, true);
  if (live_ + bytes > budget_) return false;
  leave_frame();
  runs_.push_back(op);
  work_ += static_cast<int64_t>(graph_.touches[op].size() + graph_.allocates[op].size());
  for (int32_t b : taken_over_) put(b, false);
  for (int32_t b : graph_.allocates[op]) put(b, true);
  return true;
}

// Has all operands there at once, as the innermost frame.
bool RecomputeOnDemand::gather(std::span<const int32_t> operands) {
  frames_.emplace_back(operands.begin(), operands.end());
  for (int32_t b : operands) ++pinned_[b];
  std::vector<int32_t> missing;
  for (int round = 0; round < kMostRounds; ++round) {
    missing.clear();
    for (int32_t b : operands)
      if (!there_[b]) missing.push_back(b);
    for (int32_t b : missing) was_missing_[b] = 1;
    if (missing.empty()) return true;
    std::sort(missing.begin(), missing.end(), [&](int32_t a, int32_t b) {
      const int32_t one = graph_.producers[a], other = graph_.producers[b];
      if (one < 0 || other < 0 || one == other) return a < b;
      if (rule_.hardest_first && need_[one] != need_[other]) return need_[one] > need_[other];
      return program_.place[one] < program_.place[other];
    });
    for (int32_t b : missing)
      if (!there_[b] && (!program_.remakeable[b] || !run_op(graph_.producers[b]))) return false;
  }
  return std::all_of(operands.begin(), operands.end(), [&](int32_t b) { return there_[b]; });
}

void RecomputeOnDemand::leave_frame() {
  for (int32_t b : frames_.back()) --pinned_[b];
  frames_.pop_back();
}

bool RecomputeOnDemand::may_go(int32_t buffer) const {
  return program_.remakeable[buffer] && program_.counted_size(buffer) > 0 && may_evict(buffer);
}

// Operands of the innermost frame that go as the op runs, because what it writes takes their bytes: those that nothing
// needs, or all that can be made again.
int64_t RecomputeOnDemand::take_over(int32_t op, bool also_needed) {
  if (!program_.in_place) return 0;
  int64_t saved = 0;
  std::vector<int32_t> written_over;
  const auto flat = graph_.in_place[op];
  for (size_t i = 0; i + 1 < flat.size(); i += 2) {
    const int32_t read = flat[i], written = flat[i + 1];
    if (graph_.producers[written] != op || !graph_.freeable(read) || graph_.sizes[read] != graph_.sizes[written] ||
        graph_.spaces[read] != graph_.spaces[written] || program_.counted_size(read) == 0)
      continue;
    const bool is_dead = next_use_[read] == kNone && pinned_[read] == 1;
    if (also_needed ? !may_go(read) : !is_dead) continue;
    if (!program_.remakeable[read]) {
      mark_needed();
      if (needed_[read]) continue;
    }
    const auto in = [](const std::vector<int32_t>& taken, int32_t b) {
      return std::find(taken.begin(), taken.end(), b) != taken.end();
    };
    if (in(taken_over_, read) || in(written_over, written)) continue;
    taken_over_.push_back(read);
    written_over.push_back(written);
    saved += program_.counted_size(read);
  }
  return saved;
}

// Lets go what is cheapest to make again, first what no frame waits for, then what the outermost frames wait for.
bool RecomputeOnDemand::make_room(int64_t bytes) {
  const auto is_room = [&] { return live_ + bytes <= budget_; };
  if (is_room()) return true;
  // Costs of chains are found lazily: what an op alone costs is less.
  candidates_.clear();
  for (int32_t b : evictable_)
    if (pinned_[b] == 0 && may_evict(b)) candidates_.push_back({rank(b, program_.cost[graph_.producers[b]]), b, false});
  work_ += graph_.n_buffers;
  std::make_heap(candidates_.begin(), candidates_.end());
  while (!candidates_.empty() && !is_room()) {
    std::pop_heap(candidates_.begin(), candidates_.end());
    Candidate next = candidates_.back();
    candidates_.pop_back();
    if (next.is_exact) {
      put(next.buffer, false);
    } else if (const double cost = chain_cost(next.buffer); cost != kLost) {
      candidates_.push_back({rank(next.buffer, cost), next.buffer, true});
      std::push_heap(candidates_.begin(), candidates_.end());
    }
  }
  if (!is_room()) lose_what_nothing_needs();
  for (size_t frame = 0; frame + 1 < frames_.size(); ++frame)
    for (int32_t b : frames_[frame]) {
      if (is_room()) return true;
      const auto& innermost = frames_.back();
      if (may_go(b) && std::find(innermost.begin(), innermost.end(), b) == innermost.end()) put(b, false);
    }
  return is_room();
}

// What it costs to make a buffer again with all that is missing for it; infinite where that is lost.
double RecomputeOnDemand::chain_cost(int32_t buffer) {
  ++round_;
  stack_.clear();
  double cost = 0;
  size_t seen = 0;
  const auto visit = [&](int32_t b) {
    if (!program_.remakeable[b]) return false;
    const int32_t op = graph_.producers[b];
    if (visited_[op] != round_) {
      visited_[op] = round_;
      stack_.push_back(op);
    }
    return true;
  };
  visit(buffer);
  while (!stack_.empty() && ++seen < kLongestChain) {
    const int32_t op = stack_.back();
    stack_.pop_back();
    cost += program_.cost[op];
    work_ += static_cast<int64_t>(graph_.touches[op].size());
    for (int32_t b : graph_.touches[op])
      if (!there_[b] && !visit(b)) return kLost;
  }
  return cost;
}

// Frees what cannot be made again once neither the base order nor anything that is missing can need it any more.
void RecomputeOnDemand::lose_what_nothing_needs() {
  std::vector<int32_t> dead;
  for (int32_t b : losable_)
    if (there_[b] && pinned_[b] == 0 && next_use_[b] == kNone) dead.push_back(b);
  work_ += graph_.n_buffers;
  if (dead.empty()) return;
  mark_needed();
  for (int32_t b : dead)
    if (!needed_[b]) put(b, false);
}

// Marks what is touched by anything that must still run again for what is missing.
void RecomputeOnDemand::mark_needed() {
  ++round_;
  stack_.clear();
  needed_.assign(graph_.n_buffers, 0);
  const auto visit = [&](int32_t b) {
    needed_[b] = 1;
    const int32_t op = graph_.producers[b];
    if (there_[b] || op < 0 || !program_.remakeable[b] || visited_[op] == round_) return;
    visited_[op] = round_;
    stack_.push_back(op);
  };
  for (int32_t b = 0; b < graph_.n_buffers; ++b)
    if (!there_[b] && next_use_[b] != kNone && graph_.producers[b] >= 0 &&
        program_.place[graph_.producers[b]] <= place_)
      visit(b);
  for (const auto& frame : frames_)
    for (int32_t b : frame)
      if (!there_[b]) visit(b);
  while (!stack_.empty()) {
    const int32_t op = stack_.back();
    stack_.pop_back();
    for (int32_t b : graph_.touches[op]) visit(b);
    work_ += static_cast<int64_t>(graph_.touches[op].size());
  }
  work_ += graph_.n_buffers;
}

}  // namespace lowtide
