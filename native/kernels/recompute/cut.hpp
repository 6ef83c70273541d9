// Keep or run again: the best trade of bytes at one moment against cost after it, by minimum cuts.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

enum class AtCut : uint8_t {
  kThere = 0,       // available after the cut at no price
  kKeepOrRerun = 1, // takes its bytes at the cut, or its producer runs again
  kKeepOnly = 2,    // takes its bytes at the cut, or is lost
};

struct CutProblem {
  const GraphView& graph;
  std::span<const uint8_t> at_cut;  // per buffer, AtCut
  std::span<const uint8_t> needed;  // per buffer: must be available after the cut
  std::span<const int64_t> bytes;   // per buffer: what keeping it takes
  std::span<const double> cost;     // per op
  int64_t capacity = 0;             // bytes for all that is kept
};

struct CutTrade {
  double bound = 0;            // no choice within the capacity costs less
  int64_t work = 0;            // arcs looked at
  bool fits = false;           // whether `kept` is within the capacity
  std::vector<uint8_t> kept;   // per buffer: the cheapest choice found that fits, or takes least
  std::vector<uint8_t> tight;  // per buffer: the choice next to it, somewhat over the capacity and cheaper
};

// With a price for bytes, which labels (lost, kept, made again) cost least is a minimum cut: running an op again needs its
// inputs, and a result that runs again is not kept. The price is raised until the capacity holds (Lagrange): for every
// price, cut - price * capacity is a bound. At most `max_cuts` minimum cuts of O(n + e) arcs each.
CutTrade trade_at_cut(const CutProblem& problem, int32_t max_cuts);

}  // namespace lowtide
