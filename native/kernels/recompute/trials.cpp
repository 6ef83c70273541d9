#include "kernels/recompute/trials.hpp"

#include <algorithm>

namespace lowtide {
namespace {

void toggle_in(std::vector<int32_t>& sorted, int32_t value) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), value);
  if (at != sorted.end() && *at == value)
    sorted.erase(at);
  else
    sorted.insert(at, value);
}

bool holds(std::span<const int32_t> sorted, int32_t value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

}  // namespace

RecomputeTrials::RecomputeTrials(RecomputeEvaluator& evaluator, int64_t budget)
    : evaluator_(evaluator), program_(evaluator.program()), budget_(budget), matcher_(program_.graph),
      rerun_stages_(program_.graph.n_ops), listed_(program_.graph.n_buffers), seen_op_(program_.graph.n_ops, 0),
      seen_buffer_(program_.graph.n_buffers, 0), changed_at_(program_.graph.n_buffers, -1) {
  const GraphView& graph = program_.graph;
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    if (graph.lifetimes[b] == kInput || graph.lifetimes[b] == kDonated) bytes_at_start_ += program_.counted_size(b);
    if (!graph.freeable(b)) bytes_at_end_ += program_.counted_size(b);
  }
}

const Standing& RecomputeTrials::begin(const Cuts& cuts) {
  base_ = evaluator_.run(cuts);
  standing_.cost = base_.extra_cost;
  standing_.peak = base_.peak;
  moments_.clear();
  for (auto& each : listed_) each.clear();
  for (const auto& [moment, buffers] : cuts) {
    moments_.push_back(moment);
    for (int32_t b : buffers) listed_[b].push_back(moment);
  }
  for (auto& each : rerun_stages_) each.clear();
  taken_over_.assign(base_.runs.size(), 0);
  for (size_t r = 0; r < base_.runs.size(); ++r) {
    if (program_.place[base_.runs[r]] != base_.stage[r]) rerun_stages_[base_.runs[r]].push_back(base_.stage[r]);
    for (int64_t p = base_.first_pair[r]; p < base_.first_pair[r + 1]; ++p)
      taken_over_[r] += program_.counted_size(base_.pairs[p].read);
  }
  sum_up();
  return standing_;
}

// Adds up the figures of the base execution.
void RecomputeTrials::sum_up() {
  const size_t n_runs = base_.runs.size();
  begin_.assign(program_.n_ops() + 2, n_runs);
  peak_until_.assign(n_runs + 1, bytes_at_start_);
  peak_from_.assign(n_runs + 1, 0);
  excess_until_.assign(n_runs + 1, 0);
  change_.assign(n_runs + 1, 0);
  reruns_.clear();
  cost_until_.assign(1, 0);
  for (size_t r = n_runs; r-- > 0;) {
    begin_[base_.stage[r]] = r;
    peak_from_[r] = std::max(peak_from_[r + 1], base_.live[r]);
  }
  for (int32_t stage = program_.n_ops(); stage >= 0; --stage) begin_[stage] = std::min(begin_[stage], begin_[stage + 1]);
  for (size_t r = 0; r < n_runs; ++r) {
    const int32_t op = base_.runs[r];
    peak_until_[r + 1] = std::max(peak_until_[r], base_.live[r]);
    excess_until_[r + 1] = excess_until_[r] + std::max<int64_t>(0, base_.live[r] - budget_);
    if (program_.place[op] == base_.stage[r]) continue;
    reruns_.push_back(r);
    cost_until_.push_back(cost_until_.back() + program_.cost[op]);
  }
  standing_.excess = excess_until_.back();
}

Standing RecomputeTrials::toggled(int32_t moment, int32_t buffer, std::span<const int32_t> held) {
  const bool is_new = !holds(moments_, moment);
  if (is_new) {
    toggle_in(moments_, moment);
    for (int32_t b : held) toggle_in(listed_[b], moment);
  }
  const Standing result = play_toggled(moment, buffer, false);
  toggle_in(listed_[buffer], moment);
  if (is_new) {
    for (int32_t b : held) toggle_in(listed_[b], moment);
    toggle_in(moments_, moment);
  }
  return result;
}

const Standing& RecomputeTrials::toggle(int32_t moment, int32_t buffer) {
  standing_ = play_toggled(moment, buffer, true);
  return standing_;
}

Standing RecomputeTrials::play_toggled(int32_t moment, int32_t buffer, bool keeps) {
  toggle_in(listed_[buffer], moment);
  work_ = 0;
  find_changed_runs((moment + 1) / 2, buffer);
  Standing result = standing_;
  if (!added_.empty() || !removed_.empty()) {
    find_changed_copies();  // takes the changes of the runs back
    result = standing_now();
    if (keeps) keep_changed_runs();
    for (const Changed& each : changed_) changed_at_[each.buffer] = -1;
    std::fill(change_.begin() + low_, change_.begin() + high_ + 1, 0);
  }
  evaluator_.add_work(work_);
  return result;
}

size_t RecomputeTrials::index_of(int64_t key) const {
  const int64_t width = program_.n_ops() + 1;
  if (key < 0) return 0;
  if (key >= width * width) return base_.runs.size();
  const auto stage = static_cast<int32_t>(key / width), place = static_cast<int32_t>(key % width);
  const auto first = base_.runs.begin() + begin_[stage], past = base_.runs.begin() + begin_[stage + 1];
  return std::partition_point(first, past, [&](int32_t op) { return program_.place[op] < place; }) - base_.runs.begin();
}

// The runs of a stage but the first run.
std::span<const int32_t> RecomputeTrials::chain(int32_t stage) const {
  const size_t n = begin_[stage + 1] - begin_[stage];
  return std::span(base_.runs).subspan(begin_[stage], stage < program_.n_ops() ? n - 1 : n);
}

void RecomputeTrials::find_changed_runs(int32_t first_stage, int32_t buffer) {
  added_.clear();
  removed_.clear();
  stages_.clear();
  ++round_;
  if (program_.remakeable[buffer]) await(buffer, first_stage);
  while (!stages_.empty()) {
    const int32_t stage = *stages_.begin();
    stages_.erase(stages_.begin());
    play(stage);
      const auto old = chain(stage);
    const auto place = [&](int32_t op) { return program_.place[op]; };
    auto was = old.begin();
    auto is = chain_.begin();
    while (was != old.end() || is != chain_.end()) {
      if (is == chain_.end() || (was != old.end() && place(*was) < place(*is)))
        apply({stage, *was++}, false);
      else if (was == old.end() || place(*is) < place(*was))
        apply({stage, *is++}, true);
      else
        ++was, ++is;
    }
  }
}

// Adds or removes a run. The stages that access its results are played later.
void RecomputeTrials::apply(const Rerun& rerun, bool adds) {
  (adds ? added_ : removed_).push_back(rerun);
  toggle_in(rerun_stages_[rerun.op], rerun.stage);
  for (int32_t b : program_.graph.allocates[rerun.op])
    if (program_.remakeable[b]) await(b, rerun.stage + 1);
}

// Makes the changes of the runs, or takes them back.
void RecomputeTrials::flip_changed_runs() {
  for (const auto* reruns : {&added_, &removed_})
    for (const Rerun& rerun : *reruns) toggle_in(rerun_stages_[rerun.op], rerun.stage);
}

// Notes the stages of the base execution that access a buffer, once per trial.
void RecomputeTrials::await(int32_t buffer, int32_t first_stage) {
  if (seen_buffer_[buffer] == round_) return;
  seen_buffer_[buffer] = round_;
  const auto note = [&](int32_t op) {
    if (program_.place[op] >= first_stage) stages_.insert(program_.place[op]);
    const auto& stages = rerun_stages_[op];
    for (auto at = std::lower_bound(stages.begin(), stages.end(), first_stage); at != stages.end(); ++at)
      stages_.insert(*at);
  };
  for (int32_t user : program_.graph.users[buffer]) note(user);
  note(program_.graph.producers[buffer]);
  if (program_.graph.lifetimes[buffer] == kOutput && first_stage <= program_.n_ops())
    stages_.insert(program_.n_ops());
}

// Collects the ops that run again for a stage, in base order.
void RecomputeTrials::play(int32_t stage) {
  const GraphView& graph = program_.graph;
  const int64_t collected = round_ * (program_.n_ops() + 2) + stage;
  chain_.clear();
  const auto collect = [&](int32_t b) {
    ++work_;
    const int32_t op = graph.producers[b];
    if (op < 0 || seen_op_[op] == collected || available(b, stage)) return;
    seen_op_[op] = collected;
    chain_.push_back(op);
  };
  for (int32_t b : stage < program_.n_ops() ? graph.touches[program_.order[stage]]
                                            : std::span<const int32_t>(program_.outputs))
    collect(b);
  for (size_t next = 0; next < chain_.size(); ++next)
    for (int32_t b : graph.touches[chain_[next]]) collect(b);
  std::sort(chain_.begin(), chain_.end(), [&](int32_t a, int32_t b) { return program_.place[a] < program_.place[b]; });
}

bool RecomputeTrials::available(int32_t buffer, int32_t stage) {
  if (!program_.remakeable[buffer]) return true;
  const int32_t op = program_.graph.producers[buffer];
  const auto& stages = rerun_stages_[op];
  const auto past = std::lower_bound(stages.begin(), stages.end(), stage);
  // A rerun comes before the moment of its stage's first run, a first run after it.
  const int32_t made = past == stages.begin() ? 2 * program_.place[op] + 1 : 2 * *std::prev(past);
  return !killed(buffer, made, 2 * stage);
}

// Whether a cut after one moment, up to another one, drops a buffer.
bool RecomputeTrials::killed(int32_t buffer, int32_t after, int32_t until) const {
  const int32_t last_use = program_.last_use[buffer];
  const auto& listed = listed_[buffer];
  auto at = std::upper_bound(listed.begin(), listed.end(), after);
  for (; at != listed.end() && *at <= std::min(last_use, until); ++at) {
    const bool is_used = *at % 2 && *at / 2 < program_.n_ops() &&
                         holds(program_.graph.touches[program_.order[*at / 2]], buffer);
    if (!is_used && program_.may_drop(buffer, *at)) return true;
  }
  auto moment = std::upper_bound(moments_.begin(), moments_.end(), std::max(after, last_use));
  for (; moment != moments_.end() && *moment <= until; ++moment) {
    while (at != listed.end() && *at < *moment) ++at;
    if (at == listed.end() || *at != *moment) return true;
  }
  return false;
}

}  // namespace lowtide
