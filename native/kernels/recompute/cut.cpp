#include "kernels/recompute/cut.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/search/max_flow.hpp"

namespace lowtide {
namespace {

constexpr int32_t kUnreached = -1, kReached = -2;  // in place of a node
constexpr double kTotal = 1e13;  // what all costs together are scaled to, so that integer cuts lose little

struct Choice {
  double value = 0;  // of the cut, a bound on cost + price * bytes in scaled units
  double cost = 0;   // scaled
  double bytes = 0;
  int64_t work = 0;
  std::vector<uint8_t> kept;
};

// Minimum cuts of one network at different prices. A flow at a price is one at every higher price, too, so that cuts
// start from the flow at the highest price below.
class PricedCut {
 public:
  PricedCut(const CutProblem& problem) : problem_(problem), node_of_buffer_(problem.graph.n_buffers, kUnreached),
                                         node_of_op_(problem.graph.n_ops, kUnreached), flow_(2) {
    double total = 0;
    for (double cost : problem.cost) total += cost;
    scale_ = total > 0 ? kTotal / total : 1;
    for (int32_t b = 0; b < problem.graph.n_buffers; ++b)
      if (problem.needed[b] && at(b) != AtCut::kThere) reach(b);
    for (size_t next = 0; next < ops_.size(); ++next)
      for (int32_t b : problem.graph.touches[ops_[next]])
        if (at(b) != AtCut::kThere) reach(b);
    add_nodes();
    for (int32_t op : ops_) {
      flow_.add_edge(node_of_op_[op], MaxFlow::kSink, static_cast<int64_t>(problem.cost[op] * scale_));
      for (int32_t b : problem.graph.touches[op])
        if (at(b) != AtCut::kThere && node_of_buffer_[b] != node_of_op_[op])
          flow_.add_edge(node_of_op_[op], node_of_buffer_[b], MaxFlow::kInfinite);
    }
    for (int32_t b : buffers_) {
      priced_.push_back(flow_.add_edge(node_of_buffer_[b], producer_node(b), 0));
      if (problem.needed[b]) flow_.add_edge(MaxFlow::kSource, node_of_buffer_[b], MaxFlow::kInfinite);
    }
    flow_.run(0);
    start_ = empty_ = {0, 0, flow_.residual()};
  }

  double scale() const { return scale_; }

  Choice keep_all() const {
    Choice choice;
    choice.kept.assign(problem_.graph.n_buffers, 0);
    for (int32_t b : buffers_)
      if (problem_.needed[b]) {
        choice.kept[b] = 1;
        choice.bytes += static_cast<double>(problem_.bytes[b]);
      }
    return choice;
  }

  // The cheapest choice at a price. It starts later ones where it keeps more than `capacity`.
  Choice best(double price, double capacity) {
    const int64_t before = flow_.work();
    if (price < start_.price) start_ = empty_;
    flow_.restore(start_.residual);
    for (size_t i = 0; i < buffers_.size(); ++i)
      flow_.widen(priced_[i], paid(price, buffers_[i]) - paid(start_.price, buffers_[i]));
    const int64_t value = start_.value + flow_.run();
    Choice choice;
    choice.value = static_cast<double>(value);
    choice.work = flow_.work() - before;
    choice.kept.assign(problem_.graph.n_buffers, 0);
    for (int32_t op : ops_)
      if (flow_.on_source_side(node_of_op_[op])) choice.cost += problem_.cost[op] * scale_;
    for (int32_t b : buffers_) {
      if (!flow_.on_source_side(node_of_buffer_[b])) continue;
      if (at(b) == AtCut::kKeepOrRerun && flow_.on_source_side(producer_node(b))) continue;
      choice.kept[b] = 1;
      choice.bytes += static_cast<double>(problem_.bytes[b]);
    }
    if (choice.bytes > capacity) start_ = {price, value, flow_.residual()};
    return choice;
  }

 private:
  struct Start {
    double price;
    int64_t value;
    std::vector<int64_t> residual;
  };

  int64_t paid(double price, int32_t buffer) const {
    return static_cast<int64_t>(std::min(price * static_cast<double>(problem_.bytes[buffer]), 1e17));
  }
  AtCut at(int32_t buffer) const { return static_cast<AtCut>(problem_.at_cut[buffer]); }
  int32_t producer_node(int32_t buffer) const {
    return at(buffer) == AtCut::kKeepOnly ? MaxFlow::kSink : node_of_op_[problem_.graph.producers[buffer]];
  }
  void reach(int32_t buffer) {
    if (node_of_buffer_[buffer] != kUnreached) return;
    node_of_buffer_[buffer] = kReached;
    buffers_.push_back(buffer);
    if (at(buffer) == AtCut::kKeepOnly) return;
    const int32_t op = problem_.graph.producers[buffer];
    if (node_of_op_[op] != kUnreached) return;
    node_of_op_[op] = kReached;
    ops_.push_back(op);
  }
  // Gives ops and buffers their nodes. A buffer that only one op needs is on the side of that op and shares its node.
  void add_nodes() {
    std::vector<int32_t> n_users(problem_.graph.n_buffers, 0), user(problem_.graph.n_buffers, -1);
    for (int32_t op : ops_) {
      node_of_op_[op] = flow_.add_node();
      for (int32_t b : problem_.graph.touches[op]) {
        ++n_users[b];
        user[b] = op;
      }
    }
    for (int32_t b : buffers_)
      node_of_buffer_[b] = n_users[b] == 1 && !problem_.needed[b] ? node_of_op_[user[b]] : flow_.add_node();
  }

  const CutProblem& problem_;
  double scale_ = 1;
  std::vector<int32_t> node_of_buffer_, node_of_op_, buffers_, ops_;
  MaxFlow flow_;
  std::vector<int64_t> priced_;  // per entry of `buffers_`: its edge
  Start empty_{}, start_{};
};

}  // namespace

CutTrade trade_at_cut(const CutProblem& problem, int32_t max_cuts) {
  PricedCut cutter(problem);
  const auto capacity = static_cast<double>(problem.capacity);
  Choice cheap = cutter.keep_all(), small;
  CutTrade trade;
  trade.kept = trade.tight = cheap.kept;
  trade.fits = cheap.bytes <= capacity;
  if (trade.fits || cheap.bytes <= 0) return trade;

  double price = kTotal / cheap.bytes;
  int32_t cuts = 0;
  const auto look = [&](double at_price) {
    Choice choice = cutter.best(at_price, capacity);
    ++cuts;
    trade.work += choice.work;
    trade.bound = std::max(trade.bound, (choice.value - at_price * capacity) / cutter.scale());
    return choice;
  };
  for (small = look(price); small.bytes > capacity && cuts < max_cuts && price * cheap.bytes < 1e17; small = look(price)) {
    trade.tight = small.kept;
    price *= 4;
  }
  trade.kept = small.kept;
  trade.fits = small.bytes <= capacity;
  while (trade.fits && cuts < max_cuts && cheap.bytes > small.bytes) {
    const double next = (small.cost - cheap.cost) / (cheap.bytes - small.bytes);
    if (next <= 0) break;
    Choice choice = look(next);
    const double line = cheap.cost + next * cheap.bytes;
    if (choice.value >= line * (1 - 1e-9)) break;  // nothing lies below the line through both
    if (choice.bytes > capacity) {
      cheap = std::move(choice);
      trade.tight = cheap.kept;
    } else {
      small = std::move(choice);
      trade.kept = small.kept;
    }
  }
  return trade;
}

}  // namespace lowtide
