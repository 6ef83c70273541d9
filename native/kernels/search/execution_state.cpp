#include "kernels/search/execution_state.hpp"

#include <algorithm>

namespace lowtide {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64 by Steele, Lea and Flood
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

ExecutionState::ExecutionState(const GraphView& graph, bool in_place)
    : graph_(graph), in_place_(in_place), matcher_(graph), live_(graph.n_spaces, 0), waiting_(graph.n_ops),
      others_(graph.n_buffers, 0), ready_place_(graph.n_ops, -1), taken_(graph.n_ops, 0), keys_(graph.n_ops) {
  for (int32_t op = 0; op < graph.n_ops; ++op)
    keys_[op] = {mix(2 * static_cast<uint64_t>(op)), mix(2 * static_cast<uint64_t>(op) + 1)};
}

void ExecutionState::make_ready(int32_t op) {
  ready_place_[op] = static_cast<int32_t>(ready_.size());
  ready_.push_back(op);
}

void ExecutionState::drop_ready(int32_t op) {
  const int32_t place = ready_place_[op], last = ready_.back();
  ready_[place] = last;
  ready_place_[last] = place;
  ready_.pop_back();
  ready_place_[op] = -1;
}

void ExecutionState::mark(int32_t op, bool taken) {
  taken_[op] = taken;
  fingerprint_.low ^= keys_[op].low;
  fingerprint_.high ^= keys_[op].high;
}

// Turns live bytes before an op into live bytes while it runs, in-place pairs left out.
void ExecutionState::add_peak_of_run(int32_t op, Bytes& live_before) const {
  for (int32_t b : graph_.allocates[op]) live_before[graph_.spaces[b]] += graph_.sizes[b];
  for (int32_t s = 0; s < graph_.n_spaces; ++s) live_before[s] += graph_.scratch[int64_t{op} * graph_.n_spaces + s];
}

ForwardState::ForwardState(const GraphView& graph, bool in_place)
    : ExecutionState(graph, in_place), net_(graph.n_spaces) {
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    others_[b] = static_cast<int32_t>(graph.users[b].size());
    if (graph.lifetimes[b] == kInput || (graph.lifetimes[b] == kDonated && others_[b] > 0))
      live_[graph.spaces[b]] += graph.sizes[b];
  }
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    waiting_[op] = static_cast<int32_t>(graph.predecessors[op].size());
    if (waiting_[op] == 0) make_ready(op);
  }
}

void ForwardState::change(int32_t op, Bytes& net) const {
  std::fill(net.begin(), net.end(), 0);
  for (int32_t b : graph_.allocates[op])
    if (others_[b] > 0 || !graph_.freeable(b)) net[graph_.spaces[b]] += graph_.sizes[b];
  for (int32_t b : graph_.touches[op])
    if (others_[b] == 1 && graph_.freeable(b)) net[graph_.spaces[b]] -= graph_.sizes[b];
}

void ForwardState::peak(int32_t op, Bytes& peak) const {
  peak = live_;
  add_peak_of_run(op, peak);
  if (!in_place_ || graph_.in_place[op].empty()) return;
  pairs_.clear();
  matcher_.match(op, [&](int32_t b) { return others_[b] == 1; }, pairs_);
  for (const auto& pair : pairs_) peak[graph_.spaces[pair.read]] -= graph_.sizes[pair.read];
}

void ForwardState::take(int32_t op) {
  change(op, net_);
  for (int32_t s = 0; s < graph_.n_spaces; ++s) live_[s] += net_[s];
  for (int32_t b : graph_.touches[op]) --others_[b];
  drop_ready(op);
  for (int32_t next : graph_.successors[op])
    if (--waiting_[next] == 0) make_ready(next);
  path_.push_back(op);
  mark(op, true);
}

void ForwardState::undo() {
  const int32_t op = path_.back();
  path_.pop_back();
  mark(op, false);
  for (int32_t next : graph_.successors[op])
    if (waiting_[next]++ == 0) drop_ready(next);
  for (int32_t b : graph_.touches[op]) ++others_[b];
  change(op, net_);
  for (int32_t s = 0; s < graph_.n_spaces; ++s) live_[s] -= net_[s];
  make_ready(op);
}

BackwardState::BackwardState(const GraphView& graph, bool in_place)
    : ExecutionState(graph, in_place), net_(graph.n_spaces), pair_readers_(graph.n_buffers, 0) {
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    if (graph.lifetimes[b] == kInput || graph.lifetimes[b] == kOutput) live_[graph.spaces[b]] += graph.sizes[b];
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    waiting_[op] = static_cast<int32_t>(graph.successors[op].size());
    if (waiting_[op] == 0) make_ready(op);
    const auto flat = graph.in_place[op];
    for (size_t i = 0; in_place && i + 1 < flat.size(); i += 2) ++pair_readers_[flat[i]];
  }
}

void BackwardState::change(int32_t op, Bytes& net) const {
  std::fill(net.begin(), net.end(), 0);
  for (int32_t b : graph_.allocates[op])
    if (persists(b)) net[graph_.spaces[b]] -= graph_.sizes[b];
  for (int32_t b : graph_.touches[op])
    if (others_[b] == 0 && graph_.freeable(b)) net[graph_.spaces[b]] += graph_.sizes[b];
}

void BackwardState::peak(int32_t op, Bytes& peak) const {
  change(op, net_);
  peak = live_;
  for (int32_t s = 0; s < graph_.n_spaces; ++s) peak[s] += net_[s];
  add_peak_of_run(op, peak);
  if (!in_place_ || graph_.in_place[op].empty()) return;
  pairs_.clear();
  matcher_.match(op, [&](int32_t b) { return others_[b] == 0; }, pairs_);
  for (const auto& pair : pairs_) peak[graph_.spaces[pair.read]] -= graph_.sizes[pair.read];
}

bool BackwardState::never_hinders(int32_t op) const {
  const auto own = graph_.in_place[op];
  for (int32_t b : graph_.touches[op]) {
    int32_t readers = pair_readers_[b];  // an op that was taken is not among them any more
    for (size_t i = 0; !taken_[op] && i + 1 < own.size(); i += 2) readers -= own[i] == b;
    if (readers > 0) return false;
  }
  return true;
}

void BackwardState::take(int32_t op) {
  change(op, net_);
  for (int32_t s = 0; s < graph_.n_spaces; ++s) live_[s] += net_[s];
  for (int32_t b : graph_.touches[op]) ++others_[b];
  drop_ready(op);
  for (int32_t before : graph_.predecessors[op])
    if (--waiting_[before] == 0) make_ready(before);
  path_.push_back(op);
  mark(op, true);
  const auto flat = graph_.in_place[op];
  for (size_t i = 0; in_place_ && i + 1 < flat.size(); i += 2) --pair_readers_[flat[i]];
}

void BackwardState::undo() {
  const int32_t op = path_.back();
  path_.pop_back();
  mark(op, false);
  const auto flat = graph_.in_place[op];
  for (size_t i = 0; in_place_ && i + 1 < flat.size(); i += 2) ++pair_readers_[flat[i]];
  for (int32_t before : graph_.predecessors[op])
    if (waiting_[before]++ == 0) drop_ready(before);
  for (int32_t b : graph_.touches[op]) --others_[b];
  change(op, net_);
  for (int32_t s = 0; s < graph_.n_spaces; ++s) live_[s] -= net_[s];
  make_ready(op);
}

}  // namespace lowtide
