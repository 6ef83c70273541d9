#include "kernels/recompute/sequence.hpp"

#include <algorithm>

#include "kernels/recompute/cut.hpp"

namespace lowtide {
namespace {

constexpr int32_t kMostMinimumCuts = 12;
constexpr size_t kMostRunsPerOp = 8;
constexpr int32_t kNone = -1, kMadeAnew = -2;

uint64_t digest(std::span<const int32_t> runs) {  // FNV-1a
  uint64_t hash = 14695981039346656037ULL;
  for (int32_t op : runs) hash = (hash ^ static_cast<uint64_t>(op)) * 1099511628211ULL;
  return hash;
}

std::vector<int32_t> chosen(std::span<const int32_t> runs, std::span<const size_t> positions) {
  std::vector<int32_t> result;
  result.reserve(positions.size());
  for (size_t r : positions) result.push_back(runs[r]);
  return result;
}

}  // namespace

RecomputeSequence::RecomputeSequence(RecomputeEvaluator& evaluator, std::span<const double> weights, int64_t budget,
                                     int64_t max_work)
    : evaluator_(evaluator), program_(evaluator.program()), weights_(weights), budget_(budget), max_work_(max_work),
      start_(evaluator.work()), marked_(program_.graph.n_ops, 0) {}

bool RecomputeSequence::settle(std::vector<int32_t>& runs, Pick pick, int64_t reserve, double max_cost) {
  std::set<uint64_t> seen;
  bool keep_stage = false;
  for (;;) {
    const Execution& execution = evaluator_.replay(runs);
    const auto& live = execution.live;
    const auto is_over = [&](int64_t bytes) { return bytes > budget_; };
    size_t at = std::max_element(live.begin(), live.end()) - live.begin();
    if (at == live.size() || !is_over(live[at])) return execution.peak <= budget_;
    const bool again = !seen.insert(digest(runs)).second;
    if ((again && keep_stage) || !within_work() || execution.extra_cost > max_cost) return false;
    if (runs.size() > kMostRunsPerOp * program_.order.size()) return false;
    keep_stage = again;
    if (pick == Pick::kFirst) at = std::find_if(live.begin(), live.end(), is_over) - live.begin();
    if (pick == Pick::kLast) at = live.rend() - std::find_if(live.rbegin(), live.rend(), is_over) - 1;
    trade(runs, at, budget_ - reserve, keep_stage);
  }
}

void RecomputeSequence::note_uses(const Execution& execution, size_t at) {
  const GraphView& graph = program_.graph;
  held_.assign(graph.n_buffers, kNone);
  next_.assign(graph.n_buffers, kNone);
  exists_.resize(graph.n_buffers);
  for (int32_t b = 0; b < graph.n_buffers; ++b) exists_[b] = graph.producers[b] < 0;
  for (size_t r = 0; r < execution.runs.size(); ++r) {
    int64_t access = execution.first_access[r];
    for (int32_t b : graph.touches[execution.runs[r]]) {
      const bool dies = execution.dies[access++];
      if (r <= at) held_[b] = dies ? kNone : static_cast<int32_t>(r);
      else if (next_[b] == kNone) next_[b] = static_cast<int32_t>(r);
    }
    for (int32_t b : graph.allocates[execution.runs[r]]) {
      const bool dies = execution.dies[access++];
      if (r <= at) {
        held_[b] = dies ? kNone : static_cast<int32_t>(r);
        exists_[b] = 1;
      } else if (next_[b] == kNone)
        next_[b] = kMadeAnew;
    }
  }
}

// Chooses what to keep at a run, and rewrites all runs after it.
void RecomputeSequence::trade(std::vector<int32_t>& runs, size_t at, int64_t capacity, bool keep_stage) {
  const GraphView& graph = program_.graph;
  const Execution& execution = evaluator_.last();
  note_uses(execution, at);
  const int32_t n = program_.n_ops(), op = runs[at], stage = execution.stage[at];
  std::vector<uint8_t> present(graph.n_buffers, 0), needed(graph.n_buffers, 0);
  std::vector<uint8_t> at_cut(graph.n_buffers, static_cast<uint8_t>(AtCut::kThere));
  std::vector<int64_t> bytes(graph.n_buffers, 0);
  for (int32_t b : graph.touches[op]) present[b] = 1;
  for (int32_t b : graph.allocates[op]) present[b] = 1;
  for (int64_t p = execution.first_pair[at]; p < execution.first_pair[at + 1]; ++p)
    present[execution.pairs[p].read] = 0;
  capacity -= execution.live[at];
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    if (!exists_[b] || present[b] || graph.lifetimes[b] <= kInput || graph.sizes[b] == 0) continue;
    bytes[b] = program_.counted_size(b);
    const bool held = held_[b] != kNone;
    if (!program_.remakeable[b]) {
      if (!held) at_cut[b] = static_cast<uint8_t>(AtCut::kKeepOnly);
      continue;
    }
    if (held) {
      const int32_t used_for = next_[b] >= 0 ? execution.stage[next_[b]] : n;
      const bool is_late = 2 * used_for + 1 > program_.remake_until[b];
      if (is_late || (keep_stage && used_for == stage && execution.stage[held_[b]] == stage)) continue;
      needed[b] = 1;
      capacity += bytes[b];
    }
    at_cut[b] = static_cast<uint8_t>(AtCut::kKeepOrRerun);
  }
  const CutTrade trade = trade_at_cut({graph, at_cut, needed, bytes, weights_, capacity}, kMostMinimumCuts);
  evaluator_.add_work(trade.work);

  there_.assign(graph.n_buffers, 1);
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    if (at_cut[b] == static_cast<uint8_t>(AtCut::kKeepOrRerun)) there_[b] = trade.kept[b];
  std::vector<int32_t> changed(runs.begin(), runs.begin() + static_cast<int64_t>(at) + 1);
  for (size_t r = at + 1; r < runs.size(); ++r) {
    bring_back(graph.touches[runs[r]], changed);
    make(runs[r], changed);
  }
  bring_back(program_.outputs, changed);
  runs = chosen(changed, used_runs(changed));
}

void RecomputeSequence::make(int32_t op, std::vector<int32_t>& runs) {
  runs.push_back(op);
  for (int32_t b : program_.graph.allocates[op]) there_[b] = 1;
}

void RecomputeSequence::bring_back(std::span<const int32_t> needed, std::vector<int32_t>& runs) {
  const GraphView& graph = program_.graph;
  chain_.clear();
  ++round_;
  const auto collect = [&](int32_t b) {
    if (there_[b]) return;
    const int32_t op = graph.producers[b];
    if (marked_[op] == round_) return;
    marked_[op] = round_;
    chain_.push_back(op);
  };
  for (int32_t b : needed) collect(b);
  for (size_t next = 0; next < chain_.size(); ++next)
    for (int32_t b : graph.touches[chain_[next]]) collect(b);
  std::sort(chain_.begin(), chain_.end(), [&](int32_t a, int32_t b) { return program_.place[a] < program_.place[b]; });
  for (int32_t op : chain_) make(op, runs);
}

// The positions of all first runs, and of reruns of which something is used.
std::vector<size_t> RecomputeSequence::used_runs(std::span<const int32_t> runs) const {
  const GraphView& graph = program_.graph;
  std::vector<uint8_t> used(graph.n_buffers, 0);
  for (int32_t b : program_.outputs) used[b] = 1;
  std::vector<size_t> positions;
  std::vector<uint8_t> is_first(runs.size(), 0);
  int32_t next = 0;
  for (size_t r = 0; r < runs.size(); ++r)
    if (next < program_.n_ops() && runs[r] == program_.order[next]) {
      is_first[r] = 1;
      ++next;
    }
  for (size_t r = runs.size(); r-- > 0;) {
    const auto made = graph.allocates[runs[r]];
    if (!is_first[r] && std::none_of(made.begin(), made.end(), [&](int32_t b) { return used[b]; })) continue;
    positions.push_back(r);
    for (int32_t b : made) used[b] = 0;
    for (int32_t b : graph.touches[runs[r]]) used[b] = 1;
  }
  std::reverse(positions.begin(), positions.end());
  return positions;
}

void RecomputeSequence::trim(std::vector<int32_t>& runs) {
  if (evaluator_.replay(runs).peak > budget_) return;
  while (trim_once(runs)) continue;
}

bool RecomputeSequence::trim_once(std::vector<int32_t>& runs) {
  Execution execution = evaluator_.replay(runs);
  note_copies(execution);
  std::vector<size_t> reruns, where(runs.size());  // where: positions now
  for (size_t r = 0; r < runs.size(); ++r) {
    where[r] = r;
    if (program_.place[runs[r]] != execution.stage[r]) reruns.push_back(r);
  }
  std::stable_sort(reruns.begin(), reruns.end(), [original = runs, this](size_t a, size_t b) {
    return program_.cost[original[a]] > program_.cost[original[b]];
  });
  bool found = false;
  for (size_t rerun : reruns) {
    if (!within_work()) return false;
    const size_t at = where[rerun];
    if (at == SIZE_MAX || !may_spare(execution, static_cast<int32_t>(at))) continue;
    std::vector<int32_t> fewer = runs;
    fewer.erase(fewer.begin() + static_cast<int64_t>(at));
    const auto positions = used_runs(fewer);
    fewer = chosen(fewer, positions);
    if (evaluator_.replay(fewer).peak > budget_) continue;
    std::vector<size_t> moved(runs.size(), SIZE_MAX);
    for (size_t p = 0; p < positions.size(); ++p) moved[positions[p] + (positions[p] >= at)] = p;
    for (size_t& r : where) r = r == SIZE_MAX ? r : moved[r];
    runs = std::move(fewer);
    execution = evaluator_.last();
    note_copies(execution);
    found = true;
  }
  return found;
}

void RecomputeSequence::note_copies(const Execution& execution) {
  const GraphView& graph = program_.graph;
  before_.resize(execution.dies.size());
  after_.assign(execution.dies.size(), kNone);
  maker_.resize(execution.dies.size());
  held_.assign(graph.n_buffers, kNone);
  std::vector<int32_t> made(graph.n_buffers, kNone);
  std::vector<int64_t> last(graph.n_buffers, kNone);  // per buffer: its access before
  int64_t access = 0;
  for (size_t r = 0; r < execution.runs.size(); ++r) {
    const auto run = static_cast<int32_t>(r);
    const auto note = [&](int32_t b) {
      before_[access] = held_[b];
      maker_[access] = made[b];
      held_[b] = run;
      last[b] = access++;
    };
    for (int32_t b : graph.touches[execution.runs[r]]) {
      if (last[b] != kNone) after_[last[b]] = run;
      note(b);
    }
    for (int32_t b : graph.allocates[execution.runs[r]]) {
      made[b] = run;
      note(b);
    }
  }
}

// Where the access of a run to a buffer stands.
int64_t RecomputeSequence::access_of(const Execution& execution, int32_t run, int32_t buffer) const {
  const GraphView& graph = program_.graph;
  const auto touched = graph.touches[execution.runs[run]], made = graph.allocates[execution.runs[run]];
  const auto at = std::lower_bound(touched.begin(), touched.end(), buffer);
  if (at != touched.end() && *at == buffer) return execution.first_access[run] + (at - touched.begin());
  const auto own = std::find(made.begin(), made.end(), buffer);
  return execution.first_access[run] + static_cast<int64_t>(touched.size()) + (own - made.begin());
}

// Collects a rerun and the reruns before it that serve nothing else, the last first.
void RecomputeSequence::collect_spared(const Execution& execution, int32_t rerun) {
  ++round_;
  is_spared_.resize(execution.runs.size(), 0);
  spared_.clear();
  chain_.assign(1, rerun);  // a heap
  while (!chain_.empty()) {
    std::pop_heap(chain_.begin(), chain_.end());
    const int32_t r = chain_.back(), op = execution.runs[r];
    chain_.pop_back();
    if (is_spared_[r] == round_ || program_.place[op] == execution.stage[r]) continue;
    if (r != rerun && !serves_spared_alone(execution, r)) continue;
    is_spared_[r] = round_;
    spared_.push_back(r);
    const int64_t first = execution.first_access[r], n_touched = program_.graph.touches[op].size();
    evaluator_.add_work(n_touched);
    for (int64_t at = first; at < first + n_touched; ++at) {
      if (!execution.dies[at] || maker_[at] == kNone) continue;
      chain_.push_back(maker_[at]);
      std::push_heap(chain_.begin(), chain_.end());
    }
  }
}

// Whether all uses of what a run makes are among those collected.
bool RecomputeSequence::serves_spared_alone(const Execution& execution, int32_t run) const {
  const GraphView& graph = program_.graph;
  const int32_t op = execution.runs[run];
  int64_t access = execution.first_access[run] + static_cast<int64_t>(graph.touches[op].size());
  for (int32_t b : graph.allocates[op])
    for (int64_t at = access++; !execution.dies[at];) {
      const int32_t use = after_[at];
      if (use == kNone || is_spared_[use] != round_) return false;
      at = access_of(execution, use, b);
    }
  return true;
}

// A quick look whether live bytes stay within the budget when a rerun and what serves it alone are left out: the copies
// before it stay until it, and what only they read goes earlier. In-place pairs are taken to change for the better.
bool RecomputeSequence::may_spare(const Execution& execution, int32_t rerun) {
  const GraphView& graph = program_.graph;
  collect_spared(execution, rerun);
  int32_t earliest = rerun;
  changes_.assign(static_cast<size_t>(rerun) + 1, 0);
  const auto change = [&](int32_t from, int32_t until, int64_t bytes) {  // at runs from one to before another
    until = std::min(until, rerun);
    if (from >= until) return;
    changes_[from] += bytes;
    changes_[until] -= bytes;
    earliest = std::min(earliest, from);
  };
  int64_t access = execution.first_access[rerun] + static_cast<int64_t>(graph.touches[execution.runs[rerun]].size());
  for (int32_t b : graph.allocates[execution.runs[rerun]]) {
    int32_t before = before_[access];
    if (execution.dies[access++]) continue;
    while (is_spared_[before] == round_) before = before_[access_of(execution, before, b)];
    change(before + 1, rerun, program_.counted_size(b));
  }
  for (int32_t r : spared_) {
    access = execution.first_access[r];
    for (int32_t b : graph.touches[execution.runs[r]]) {
      const int64_t at = access++;
      if (!execution.dies[at]) continue;
      int32_t since = before_[at];  // where the copy goes then
      while (since != kNone && since != maker_[at] && is_spared_[since] == round_)
        since = before_[access_of(execution, since, b)];
      const bool may_pair = since == kNone || !graph.in_place[execution.runs[since]].empty();
      change(std::max(0, since) + !may_pair, r + 1, -program_.counted_size(b));
    }
  }
  evaluator_.add_work(rerun - earliest);
  int64_t changed = 0;
  for (int32_t r = earliest; r < rerun; ++r) {
    changed += changes_[r];
    if (is_spared_[r] != round_ && execution.live[r] + changed > budget_) return false;
  }
  return true;
}

}  // namespace lowtide
