#include "kernels/recompute/execution.hpp"

#include <algorithm>

namespace lowtide {

void RecomputeProgram::derive() {
  const int32_t n = n_ops();
  place.assign(n, 0);
  for (int32_t i = 0; i < n; ++i) place[order[i]] = i;
  counted.assign(graph.n_buffers, 0);
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    if (graph.spaces[b] == space && graph.lifetimes[b] != kPersistent) counted[b] = graph.sizes[b];
  last_use.assign(graph.n_buffers, -1);
  remakeable.assign(graph.n_buffers, 0);
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    const int32_t producer = graph.producers[b];
    if (producer >= 0) last_use[b] = 2 * place[producer] + 1;
    for (int32_t user : graph.users[b]) last_use[b] = std::max(last_use[b], 2 * place[user] + 1);
    if (graph.lifetimes[b] == kOutput && producer >= 0) {
      last_use[b] = 2 * n + 1;
      outputs.push_back(b);
    }
    remakeable[b] =
        graph.lifetimes[b] >= kIntermediate && producer >= 0 && rerun_until[producer] > 0 && graph.sizes[b] > 0;
  }
  remake_until.assign(graph.n_buffers, 0);
  for (int32_t op : order) {
    int32_t until = rerun_until[op];
    for (int32_t b : graph.touches[op])
      if (remakeable[b]) until = std::min(until, remake_until[b]);
    for (int32_t b : graph.allocates[op]) {
      remake_until[b] = until;
      // what cannot be made again up to its last use is kept, so that what is made from it can be
      if (until < last_use[b]) remakeable[b] = 0;
    }
  }
}

bool RecomputeProgram::may_drop(int32_t buffer, int32_t moment) const {
  int32_t next = last_use[buffer];  // the end included
  for (int32_t user : graph.users[buffer])
    if (const int32_t use = 2 * place[user] + 1; use >= moment) next = std::min(next, use);
  return next <= remake_until[buffer];
}

RecomputeEvaluator::RecomputeEvaluator(const RecomputeProgram& program)
    : program_(program), matcher_(program.graph) {}

const Execution& RecomputeEvaluator::run(const Cuts& cuts) {
  const GraphView& graph = program_.graph;
  const int32_t n = program_.n_ops();
  result_.runs.clear();
  result_.stage.clear();
  result_.extra_cost = 0;
  gone_.assign(graph.n_buffers, 0);
  stamp_.assign(graph.n_buffers, -1);
  marked_.assign(n, -1);
  latest_ = -1;
  auto cut = cuts.begin();
  for (int32_t i = 0; i <= n; ++i) {
    for (; cut != cuts.end() && cut->first <= 2 * i; ++cut) pass_cut(cut->first, cut->second);
    bring_back(i < n ? graph.touches[program_.order[i]] : std::span<const int32_t>(program_.outputs), i);
    for (; cut != cuts.end() && cut->first <= 2 * i + 1; ++cut) pass_cut(cut->first, cut->second);
    if (i < n) emit(program_.order[i], i);
  }
  find_deaths();
  count_bytes();
  return result_;
}

const Execution& RecomputeEvaluator::replay(std::span<const int32_t> runs) {
  const int32_t n = program_.n_ops();
  result_.runs.assign(runs.begin(), runs.end());
  result_.stage.resize(runs.size());
  result_.extra_cost = 0;
  int32_t next = 0;  // the first op of the base order that has not run
  size_t told = 0;   // runs whose stage is known
  for (size_t r = 0; r < runs.size(); ++r)
    if (next < n && runs[r] == program_.order[next]) {
      std::fill(result_.stage.begin() + told, result_.stage.begin() + r + 1, next++);
      told = r + 1;
    } else
      result_.extra_cost += program_.cost[runs[r]];
  std::fill(result_.stage.begin() + told, result_.stage.end(), n);
  find_deaths();
  count_bytes();
  return result_;
}

void RecomputeEvaluator::pass_cut(int32_t moment, const std::set<int32_t>& listed) {
  const GraphView& graph = program_.graph;
  const int32_t op = moment % 2 && moment / 2 < program_.n_ops() ? program_.order[moment / 2] : -1;
  const auto touched = op >= 0 ? graph.touches[op] : std::span<const int32_t>();
  for (int32_t b : listed) {
    if (!program_.remakeable[b] || 2 * program_.place[graph.producers[b]] + 1 >= moment) continue;
    if (std::binary_search(touched.begin(), touched.end(), b)) continue;
    if (program_.last_use[b] >= moment) {
      if (program_.may_drop(b, moment)) gone_[b] = 1;
    } else if (available(b))
      stamp_[b] = moment;
  }
  latest_ = moment;
}

void RecomputeEvaluator::bring_back(std::span<const int32_t> needed, int32_t stage) {
  const GraphView& graph = program_.graph;
  chain_.clear();
  const auto collect = [&](int32_t b) {
    if (available(b)) return;
    const int32_t op = graph.producers[b];
    if (marked_[op] == stage) return;
    marked_[op] = stage;
    chain_.push_back(op);
  };
  for (int32_t b : needed) collect(b);
  for (size_t next = 0; next < chain_.size(); ++next)
    for (int32_t b : graph.touches[chain_[next]]) collect(b);
  std::sort(chain_.begin(), chain_.end(), [&](int32_t a, int32_t b) { return program_.place[a] < program_.place[b]; });
  for (int32_t op : chain_) {
    emit(op, stage);
    result_.extra_cost += program_.cost[op];
  }
}

void RecomputeEvaluator::emit(int32_t op, int32_t stage) {
  result_.runs.push_back(op);
  result_.stage.push_back(stage);
  for (int32_t b : program_.graph.allocates[op]) {
    gone_[b] = 0;
    stamp_[b] = 2 * stage;
  }
}

// Walking backward, a use of a copy that nothing needs later is its last.
void RecomputeEvaluator::find_deaths() {
  const GraphView& graph = program_.graph;
  const size_t n_runs = result_.runs.size();
  result_.first_access.assign(n_runs + 1, 0);
  for (size_t r = 0; r < n_runs; ++r) {
    const int32_t op = result_.runs[r];
    const size_t accesses = graph.touches[op].size() + graph.allocates[op].size();
    result_.first_access[r + 1] = result_.first_access[r] + static_cast<int64_t>(accesses);
  }
  result_.dies.assign(result_.first_access.back(), 0);
  work_ += result_.first_access.back() + static_cast<int64_t>(n_runs);
  needed_.assign(graph.n_buffers, 0);
  for (int32_t b = 0; b < graph.n_buffers; ++b) needed_[b] = !graph.freeable(b);
  for (size_t r = n_runs; r-- > 0;) {
    const int32_t op = result_.runs[r];
    const auto touched = graph.touches[op];
    int64_t access = result_.first_access[r] + static_cast<int64_t>(touched.size());
    for (int32_t b : graph.allocates[op]) {
      result_.dies[access++] = !needed_[b];
      needed_[b] = 0;
    }
    access = result_.first_access[r];
    for (int32_t b : touched) {
      result_.dies[access++] = !needed_[b];
      needed_[b] = 1;
    }
  }
}

void RecomputeEvaluator::count_bytes() {
  const GraphView& graph = program_.graph;
  result_.live.clear();
  result_.pairs.clear();
  result_.first_pair.assign(1, 0);
  int64_t now = 0, unused = 0;
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    if (graph.lifetimes[b] != kInput && graph.lifetimes[b] != kDonated) continue;
    now += program_.counted_size(b);
    if (graph.lifetimes[b] == kDonated && graph.users[b].empty()) unused += program_.counted_size(b);
  }
  result_.peak = now;
  now -= unused;
  for (size_t r = 0; r < result_.runs.size(); ++r) {
    const int32_t op = result_.runs[r];
    const auto touched = graph.touches[op];
    const auto dies = std::span(result_.dies).subspan(result_.first_access[r]);
    const size_t first_pair = result_.pairs.size();
    if (program_.in_place && !graph.in_place[op].empty())
      matcher_.match(
          op,
          [&](int32_t b) {
            const auto at = std::lower_bound(touched.begin(), touched.end(), b);
            return at != touched.end() && *at == b && dies[at - touched.begin()];
          },
          result_.pairs);
    result_.first_pair.push_back(static_cast<int64_t>(result_.pairs.size()));
    int64_t freed = 0, taken_over = 0;
    for (size_t t = 0; t < touched.size(); ++t)
      if (dies[t]) freed += program_.counted_size(touched[t]);
    size_t access = touched.size();
    for (int32_t b : graph.allocates[op]) {
      now += program_.counted_size(b);
      if (dies[access++]) freed += program_.counted_size(b);
    }
    for (size_t p = first_pair; p < result_.pairs.size(); ++p)
      taken_over += program_.counted_size(result_.pairs[p].read);
    result_.live.push_back(now - taken_over + graph.scratch[int64_t{op} * graph.n_spaces + program_.space]);
    result_.peak = std::max(result_.peak, result_.live.back());
    now -= freed;
  }
}

}  // namespace lowtide
