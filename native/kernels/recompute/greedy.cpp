#include "kernels/recompute/greedy.hpp"

#include <algorithm>

namespace lowtide {
namespace {

constexpr size_t kTried = 8;         // candidates that are played each round
constexpr size_t kLongestChain = 64;  // ops of a chain that are counted

}  // namespace

RecomputeGreedy::RecomputeGreedy(RecomputeEvaluator& evaluator, int64_t budget, int64_t max_work)
    : evaluator_(evaluator), program_(evaluator.program()), trials_(evaluator, budget), execution_(trials_.base()),
      budget_(budget), max_work_(max_work), start_(evaluator.work()), before_(program_.graph.n_buffers),
      after_(program_.graph.n_buffers), visited_(program_.graph.n_ops, 0) {}

// For every buffer: the last run before `first` that leaves a copy behind, and the first run from `past` on that uses it.
void RecomputeGreedy::note_uses(size_t first, size_t past) {
  const GraphView& graph = program_.graph;
  before_.assign(graph.n_buffers, -1);
  after_.assign(graph.n_buffers, -1);
  for (size_t r = 0; r < execution_.runs.size(); ++r) {
    if (r >= first && r < past) continue;
    int64_t access = execution_.first_access[r];
    const auto note = [&](int32_t b, bool used) {
      const bool dies = execution_.dies[access++];
      if (r < first) before_[b] = dies ? -1 : static_cast<int32_t>(r);
      else if (after_[b] == -1) after_[b] = used ? static_cast<int32_t>(r) : -2;  // -2: a new copy comes first
    };
    for (int32_t b : graph.touches[execution_.runs[r]]) note(b, true);
    for (int32_t b : graph.allocates[execution_.runs[r]]) note(b, false);
  }
}

double RecomputeGreedy::chain_cost(int32_t buffer, int32_t stage) {
  const GraphView& graph = program_.graph;
  ++round_;
  stack_.clear();
  size_t seen = 0;
  double cost = 0;
  const auto visit = [&](int32_t b) {
    const int32_t op = graph.producers[b];
    if (visited_[op] == round_) return;
    visited_[op] = round_;
    if (rerun_.count({op, stage})) return;
    stack_.push_back(op);
  };
  visit(buffer);
  while (!stack_.empty() && ++seen < kLongestChain) {
    const int32_t op = stack_.back();
    stack_.pop_back();
    cost += program_.cost[op];
    for (int32_t b : graph.touches[op])
      if (program_.remakeable[b] && before_[b] < 0 && program_.last_use[b] < 2 * stage) visit(b);
  }
  return cost;
}

std::vector<RecomputeGreedy::Candidate> RecomputeGreedy::candidates(size_t run) {
  const int32_t n = program_.n_ops(), stage = execution_.stage[run];
  const auto touched = program_.graph.touches[execution_.runs[run]];
  note_uses(run, run + 1);
  std::vector<Candidate> found;
  for (int32_t b = 0; b < program_.graph.n_buffers; ++b) {
    if (!program_.remakeable[b] || before_[b] < 0 || after_[b] == -2) continue;
    if (std::binary_search(touched.begin(), touched.end(), b)) continue;
    const int32_t next_stage = after_[b] >= 0 ? execution_.stage[after_[b]] : n;
    const int32_t moment = next_stage > stage ? 2 * stage + 1 : 2 * stage;
    if (next_stage == stage && execution_.stage[before_[b]] == stage) continue;
    if (program_.counted_size(b) == 0 || banned_.count({moment, b})) continue;
    found.push_back({b, moment, program_.counted_size(b), 0});
  }
  for (auto& candidate : found)
    candidate.cost = chain_cost(candidate.buffer, after_[candidate.buffer] >= 0
                                                      ? execution_.stage[after_[candidate.buffer]] : n);
  std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    const double left = a.cost * static_cast<double>(b.size), right = b.cost * static_cast<double>(a.size);
    if (left != right) return left < right;
    return a.size != b.size ? a.size > b.size : a.buffer < b.buffer;
  });
  return found;
}

// Buffers that are held across a moment although the program does not use them later.
std::vector<int32_t> RecomputeGreedy::held_against_rule(int32_t moment) {
  const int32_t stage = moment / 2;
  const auto begin = execution_.stage.begin(), end = execution_.stage.end();
  size_t first = std::lower_bound(begin, end, stage) - begin, past = first;
  if (moment % 2) {
    past = std::upper_bound(begin, end, stage) - begin;
    first = stage < program_.n_ops() ? past - 1 : past;
  }
  note_uses(first, past);
  std::vector<int32_t> held;
  for (int32_t b = 0; b < program_.graph.n_buffers; ++b)
    if (program_.remakeable[b] && program_.last_use[b] < moment && before_[b] >= 0 && after_[b] >= 0)
      held.push_back(b);
  return held;
}

const std::vector<int32_t>& RecomputeGreedy::held_at(int32_t moment) {
  const auto at = held_.find(moment);
  return at != held_.end() ? at->second : held_.emplace(moment, held_against_rule(moment)).first->second;
}

void RecomputeGreedy::drop(Cuts& cuts, const Candidate& candidate) {
  auto at = cuts.find(candidate.moment);
  if (at == cuts.end()) {
    const auto& held = held_at(candidate.moment);
    at = cuts.emplace(candidate.moment, std::set<int32_t>(held.begin(), held.end())).first;
  }
  if (is_listed_when_dropped(candidate))
    at->second.insert(candidate.buffer);
  else
    at->second.erase(candidate.buffer);
}

Standing RecomputeGreedy::dropped(const Cuts& cuts, const Candidate& candidate) {
  const auto at = cuts.find(candidate.moment);
  const auto& held = at == cuts.end() ? held_at(candidate.moment) : nothing_;
  const bool is_listed = at == cuts.end()
                             ? std::binary_search(held.begin(), held.end(), candidate.buffer)
                             : at->second.count(candidate.buffer) > 0;
  if (is_listed == is_listed_when_dropped(candidate)) return trials_.standing();
  return trials_.toggled(candidate.moment, candidate.buffer, held);
}

bool RecomputeGreedy::fit(Cuts& cuts, double max_cost) {
  Standing now = trials_.begin(cuts);
  bool may_batch = true;
  while (now.peak > budget_ && now.cost <= max_cost && within_work()) {
    const size_t worst = std::max_element(execution_.live.begin(), execution_.live.end()) - execution_.live.begin();
    if (execution_.live.empty() || execution_.live[worst] <= budget_) return false;  // the inputs alone need more
    held_.clear();
    rerun_.clear();
    for (size_t r = 0; r < execution_.runs.size(); ++r)
      if (program_.place[execution_.runs[r]] != execution_.stage[r])
        rerun_.insert({execution_.runs[r], execution_.stage[r]});
    const auto found = candidates(worst);
    if (found.empty()) return false;
    const int64_t excess = execution_.live[worst] - budget_;

    if (may_batch && found[0].size * static_cast<int64_t>(kTried) < excess) {
      Cuts more = cuts;
      int64_t freed = 0;
      for (size_t c = 0; c < found.size() && freed < excess / 4; freed += found[c++].size) drop(more, found[c]);
      const Standing then = trials_.begin(more);
      may_batch = then.excess < now.excess;
      if (may_batch) {
        cuts = std::move(more);
        now = then;
      } else
        trials_.begin(cuts);
      continue;
    }
    may_batch = true;
    double best_rate = 0;
    const Candidate* best = nullptr;
    for (size_t c = 0; c < std::min(kTried, found.size()); ++c) {
      const Standing then = dropped(cuts, found[c]);
      if (then.excess >= now.excess) {
        banned_.insert({found[c].moment, found[c].buffer});
        continue;
      }
      const double rate = (then.cost - now.cost) / static_cast<double>(now.excess - then.excess);
      if (best == nullptr || rate < best_rate) {
        best_rate = rate;
        best = &found[c];
      }
    }
    if (best == nullptr) continue;
    drop(cuts, *best);
    now = trials_.begin(cuts);
  }
  return now.peak <= budget_ && now.cost <= max_cost;
}

void RecomputeGreedy::trim(Cuts& cuts) {
  double cost = trials_.standing().cost;
  std::vector<Candidate> dropped;
  for (const auto& [moment, listed] : cuts)
    for (int32_t b : listed)
      if (program_.last_use[b] >= moment)
        dropped.push_back({b, moment, program_.counted_size(b), program_.cost[program_.graph.producers[b]]});
  std::stable_sort(dropped.begin(), dropped.end(),
                   [](const Candidate& a, const Candidate& b) { return a.cost > b.cost; });
  for (const auto& candidate : dropped) {
    if (!within_work()) return;
    const Standing then = trials_.toggled(candidate.moment, candidate.buffer, {});
    if (then.peak > budget_ || then.cost > cost) continue;
    cuts[candidate.moment].erase(candidate.buffer);
    cost = trials_.toggle(candidate.moment, candidate.buffer).cost;
  }
}

}  // namespace lowtide
