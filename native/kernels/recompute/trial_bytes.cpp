// The bytes of a trial: which copies of buffers live longer or shorter, and how that changes live bytes.
#include <algorithm>
#include <limits>

#include "kernels/recompute/trials.hpp"

namespace lowtide {
namespace {

constexpr int64_t kAtStart = -1, kAtEnd = std::numeric_limits<int64_t>::max();
constexpr int32_t kGone = -1;  // stage of a run that is removed
constexpr int64_t kRunsPerAccess = 8;  // runs whose bytes are added up in the time of one access

}  // namespace

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
  flip_changed_runs();
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
  flip_changed_runs();
  int64_t more = 0;
  for (size_t r = low_; r < high_; ++r) base_.live[r] += more += change_[r];
  for (const auto& [run, taken] : rematched_) taken_over_[run] = taken;
  for (size_t run : gone_) base_.stage[run] = kGone;
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
  low_ = high_ = 0;
  base_ = std::move(merged);
  taken_over_ = std::move(taken);
  sum_up();
}

}  // namespace lowtide
