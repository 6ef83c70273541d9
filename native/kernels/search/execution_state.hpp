// Sets of executed ops, walked one op at a time: forward from the start, or backward from the end.
#pragma once
#include "kernels/program/graph_view.hpp"
#include "kernels/program/in_place.hpp"

namespace lowtide {

// A bound or a figure per memory space.
using Bytes = std::vector<int64_t>;

inline bool fits(const Bytes& figure, const Bytes& budget) {
  for (size_t s = 0; s < figure.size(); ++s)
    if (figure[s] > budget[s]) return false;
  return true;
}

// Fingerprint of a set of ops: the chance that two sets share one is 2^-128 a pair.
struct SetFingerprint {
  uint64_t low = 0, high = 0;
  bool operator==(const SetFingerprint&) const = default;
};

struct SetFingerprintHash {
  size_t operator()(const SetFingerprint& key) const { return key.low; }
};

// What both directions share. "Taking" an op adds it to the executed set going forward and removes it going backward.
class ExecutionState {
 public:
  ExecutionState(const GraphView& graph, bool in_place);

  const GraphView& graph() const { return graph_; }
  const std::vector<int32_t>& ready() const { return ready_; }
  const std::vector<int32_t>& path() const { return path_; }  // ops in the order they were taken
  const Bytes& live() const { return live_; }
  bool taken(int32_t op) const { return taken_[op]; }
  const SetFingerprint& fingerprint() const { return fingerprint_; }

 protected:
  void make_ready(int32_t op);
  void drop_ready(int32_t op);
  void mark(int32_t op, bool taken);
  void add_peak_of_run(int32_t op, Bytes& live_before) const;

  const GraphView& graph_;
  const bool in_place_;
  mutable InPlaceMatcher matcher_;
  mutable std::vector<InPlacePair> pairs_;
  Bytes live_;
  std::vector<int32_t> waiting_;   // per op: neighbors that must be taken first
  std::vector<int32_t> others_;    // per buffer: uses not executed (forward), uses removed (backward)
  std::vector<int32_t> ready_, ready_place_, path_;
  std::vector<uint8_t> taken_;
  SetFingerprint fingerprint_;
  std::vector<SetFingerprint> keys_;
};

class ForwardState : public ExecutionState {
 public:
  static constexpr bool kForward = true;
  ForwardState(const GraphView& graph, bool in_place);

  // Change of live bytes when the op is taken next, per space.
  void change(int32_t op, Bytes& net) const;
  // Live bytes while it runs then, per space.
  void peak(int32_t op, Bytes& peak) const;
  // Whether taking it early can never cost a later op an in-place pair.
  bool never_hinders(int32_t) const { return true; }
  void take(int32_t op);
  void undo();

 private:
  mutable Bytes net_;
};

class BackwardState : public ExecutionState {
 public:
  static constexpr bool kForward = false;
  BackwardState(const GraphView& graph, bool in_place);

  void change(int32_t op, Bytes& net) const;
  void peak(int32_t op, Bytes& peak) const;
  // An op that runs late keeps its operands from being taken over by others before it.
  bool never_hinders(int32_t op) const;
  void take(int32_t op);
  void undo();

 private:
  bool persists(int32_t buffer) const { return !graph_.users[buffer].empty() || !graph_.freeable(buffer); }

  mutable Bytes net_;
  std::vector<int32_t> pair_readers_;  // per buffer: ops not taken that could take it over
};

}  // namespace lowtide
