#include "kernels/recompute/trials.hpp"

#include <algorithm>
#include <limits>

namespace lowtide {
namespace {

constexpr int64_t kAtStart = -1, kAtEnd = std::numeric_limits<int64_t>::max();
constexpr int32_t kGone = -1;  // stage of a run that is removed
constexpr int64_t kRunsPerAccess = 8;  // runs whose bytes are added up in the time of one access

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
  await(buffer, first_stage);
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

std::vector<RecomputeTrials::Copy> RecomputeTrials::copies(int32_t buffer) {
  const GraphView& graph = program_.graph;
  accesses_.clear();
  const auto note = [&](int32_t op, bool makes) {
    accesses_.push_back({key_of(program_.place[op], op), makes});
    for (int32_t stage : rerun_stages_[op]) accesses_.push_back({key_of(stage, op), makes});
  };
  if (graph.producers[buffer] >= 0) note(graph.producers[buffer], true);
  for (int32_t user : graph.users[buffer])
    if (user != graph.producers[buffer]) note(user, false);
  std::sort(accesses_.begin(), accesses_.end(), [](const Access& a, const Access& b) { return a.key < b.key; });
  work_ += static_cast<int64_t>(accesses_.size());
  std::vector<Copy> found;
  if (graph.producers[buffer] < 0) found.push_back({kAtStart, kAtStart});
  for (const Access& access : accesses_) {
    if (access.makes) found.push_back({access.key, access.key});
    found.back().last = access.key;
  }
  if (!graph.freeable(buffer)) found.back().last = kAtEnd;
  return found;
}

// Finds the copies that the changed runs change, and takes these runs back.
void RecomputeTrials::find_changed_copies() {
  const GraphView& graph = program_.graph;
  changed_.clear();
  const auto note = [&](int32_t b) {
    if (changed_at_[b] >= 0 || (graph.producers[b] < 0 && !graph.freeable(b))) return;
    changed_at_[b] = static_cast<int32_t>(changed_.size());
    changed_.push_back({b, {}, copies(b)});
  };
  for (const auto* reruns : {&added_, &removed_})
    for (const Rerun& rerun : *reruns) {
      for (int32_t b : graph.touches[rerun.op]) note(b);
      for (int32_t b : graph.allocates[rerun.op]) note(b);
    }
  for (const auto* reruns : {&added_, &removed_})
    for (const Rerun& rerun : *reruns) toggle_in(rerun_stages_[rerun.op], rerun.stage);
  for (Changed& each : changed_) each.before = copies(each.buffer);
}

// Adds costs in the order of the runs, so that the sum is rounded as that of a full execution.
double RecomputeTrials::cost_now() const {
  const auto first = [&](const std::vector<Rerun>& reruns) {
    return reruns.empty() ? kAtEnd : key_of(reruns[0].stage, reruns[0].op);
  };
  const size_t from = index_of(std::min(first(added_), first(removed_)));
  size_t at = std::lower_bound(reruns_.begin(), reruns_.end(), from) - reruns_.begin();
  double cost = cost_until_[at];
  auto added = added_.begin(), removed = removed_.begin();
  for (; at < reruns_.size(); ++at) {
    const int32_t op = base_.runs[reruns_[at]], stage = base_.stage[reruns_[at]];
    for (; added != added_.end() && key_of(added->stage, added->op) < key_of(stage, op); ++added)
      cost += program_.cost[added->op];
    if (removed != removed_.end() && removed->op == op && removed->stage == stage)
      ++removed;
    else
      cost += program_.cost[op];
  }
  for (; added != added_.end(); ++added) cost += program_.cost[added->op];
  return cost;
}

// Changes the live bytes of the base runs during a copy.
void RecomputeTrials::change(const Copy& copy, int64_t bytes) {
  const size_t first = index_of(copy.first);
  const size_t past = copy.last == kAtEnd ? base_.runs.size() : index_of(copy.last + 1);
  if (first >= past) return;
  change_[first] += bytes;
  change_[past] -= bytes;
  low_ = std::min(low_, first);
  high_ = std::max(high_, past);
}

int64_t RecomputeTrials::bytes_before(size_t run) const {
  if (run == base_.runs.size()) return bytes_at_end_;
  const int32_t op = base_.runs[run];
  int64_t bytes = base_.live[run] - program_.graph.scratch[int64_t{op} * program_.graph.n_spaces + program_.space];
  for (int32_t b : program_.graph.allocates[op]) bytes -= program_.counted_size(b);
  return bytes + taken_over_[run];
}

// Bytes that the results of a run take over in the trial.
int64_t RecomputeTrials::taken_over(int64_t key, int32_t op) {
  if (!program_.in_place || program_.graph.in_place[op].empty()) return 0;
  pairs_.clear();
  const auto ends_here = [&](const Copy& copy) { return copy.last == key; };
  matcher_.match(
      op,
      [&](int32_t b) {
        const int32_t at = changed_at_[b];
        if (at >= 0) return std::any_of(changed_[at].now.begin(), changed_[at].now.end(), ends_here);
        const auto unchanged = copies(b);
        return std::any_of(unchanged.begin(), unchanged.end(), ends_here);
      },
      pairs_);
  int64_t bytes = 0;
  for (const auto& pair : pairs_) bytes += program_.counted_size(pair.read);
  return bytes;
}

// Live bytes at an added run, before its results take bytes over.
int64_t RecomputeTrials::bytes_at(int64_t key, int32_t op) {
  int64_t bytes = bytes_before(index_of(key));
  for (const Changed& each : changed_) {
    const int64_t size = program_.counted_size(each.buffer);
    for (const Copy& copy : each.before)
      if (copy.first < key && copy.last > key) bytes -= size;
    for (const Copy& copy : each.now)
      if (copy.first <= key && copy.last >= key) bytes += size;
    work_ += static_cast<int64_t>(each.before.size());
  }
  return bytes + program_.graph.scratch[int64_t{op} * program_.graph.n_spaces + program_.space];
}

Standing RecomputeTrials::standing_now() {
  low_ = base_.runs.size();
  high_ = 0;
  std::set<int64_t> rematched;  // runs at which a copy ends that did not end there, or no longer ends
  for (const Changed& each : changed_) {
    const int64_t size = program_.counted_size(each.buffer);
    const auto differing = [&](const std::vector<Copy>& copies, const std::vector<Copy>& others, int64_t bytes) {
      for (const Copy& copy : copies) {
        if (std::find(others.begin(), others.end(), copy) != others.end()) continue;
        change(copy, bytes);
        if (copy.last >= 0 && copy.last != kAtEnd) rematched.insert(copy.last);
      }
    };
    differing(each.before, each.now, -size);
    differing(each.now, each.before, size);
  }
  Standing now{cost_now(), 0, 0};
  new_runs_.clear();
  for (const Rerun& rerun : added_) {
    const int64_t key = key_of(rerun.stage, rerun.op);
    const int64_t taken = taken_over(key, rerun.op), live = bytes_at(key, rerun.op) - taken;
    new_runs_.push_back({index_of(key), live, taken});
    rematched.erase(key);
    now.peak = std::max(now.peak, live);
    now.excess += std::max<int64_t>(0, live - budget_);
  }
  gone_.clear();
  for (const Rerun& rerun : removed_) {
    const int64_t key = key_of(rerun.stage, rerun.op);
    gone_.push_back(index_of(key));
    rematched.erase(key);
    low_ = std::min(low_, gone_.back());
    high_ = std::max(high_, gone_.back() + 1);
  }
  rematched_.clear();
  for (int64_t key : rematched) {
    const size_t run = index_of(key);
    const int64_t taken = taken_over(key, base_.runs[run]), more = taken_over_[run] - taken;
    rematched_.push_back({run, taken});
    change_[run] += more;
    change_[run + 1] -= more;
  }
  low_ = std::min(low_, high_);
  now.peak = std::max({now.peak, peak_until_[low_], peak_from_[high_]});
  now.excess += standing_.excess - (excess_until_[high_] - excess_until_[low_]);
  int64_t more = 0;
  auto gone = gone_.begin();
  for (size_t r = low_; r < high_; ++r) {
    more += change_[r];
    if (gone != gone_.end() && *gone == r) {
      ++gone;
      continue;
    }
    const int64_t live = base_.live[r] + more;
    now.peak = std::max(now.peak, live);
    now.excess += std::max<int64_t>(0, live - budget_);
  }
  work_ += static_cast<int64_t>(high_ - low_) / kRunsPerAccess;
  return now;
}

// Makes the trial the base execution.
void RecomputeTrials::keep_changed_runs() {
  for (const auto* reruns : {&added_, &removed_})
    for (const Rerun& rerun : *reruns) toggle_in(rerun_stages_[rerun.op], rerun.stage);
  int64_t more = 0;
  for (size_t r = low_; r < high_; ++r) base_.live[r] += more += change_[r];
  for (const auto& [run, taken] : rematched_) taken_over_[run] = taken;
  for (size_t i = gone_.size(); i-- > 0;) base_.stage[gone_[i]] = kGone;
  Execution merged;
  std::vector<int64_t> taken;
  auto at = new_runs_.begin();
  auto added = added_.begin();
  const size_t n_runs = base_.runs.size();
  merged.runs.reserve(n_runs + added_.size());
  merged.stage.reserve(n_runs + added_.size());
  merged.live.reserve(n_runs + added_.size());
  taken.reserve(n_runs + added_.size());
  for (size_t r = 0; r <= n_runs; ++r) {
    for (; at != new_runs_.end() && at->before == r; ++at, ++added) {
      merged.runs.push_back(added->op);
      merged.stage.push_back(added->stage);
      merged.live.push_back(at->live);
      taken.push_back(at->taken_over);
    }
    if (r == n_runs || base_.stage[r] == kGone) continue;
    merged.runs.push_back(base_.runs[r]);
    merged.stage.push_back(base_.stage[r]);
    merged.live.push_back(base_.live[r]);
    taken.push_back(taken_over_[r]);
  }
  std::fill(change_.begin() + low_, change_.begin() + high_ + 1, 0);
  low_ = high_ = 0;
  base_ = std::move(merged);
  taken_over_ = std::move(taken);
  sum_up();
}

}  // namespace lowtide
