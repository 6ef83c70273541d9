#include "kernels/search/safe_closure.hpp"

#include <algorithm>
#include <queue>
#include <tuple>

#include "kernels/program/evaluate.hpp"
#include "kernels/search/execution_state.hpp"

namespace lowtide {
namespace {

template <class State>
class Closer {
 public:
  // `order` is in the direction of the walk; nothing is taken early that exceeds `budget`.
  Closer(const GraphView& graph, bool in_place, Bytes budget, std::span<const int32_t> order)
      : graph_(graph), state_(graph, in_place), budget_(std::move(budget)), order_(order), rank_(order.size()),
        ready_(order.size(), 0), used_(graph.n_buffers, 0), net_(graph.n_spaces), peak_(graph.n_spaces) {
    for (size_t i = 0; i < order.size(); ++i) rank_[order[i]] = static_cast<int32_t>(i);
  }

  const std::vector<int32_t>& walk() {
    welcome(0);
    for (int32_t op : order_) {
      while (!free_.empty() && try_top()) {
      }
      if (!state_.taken(op)) take(op);
    }
    return state_.path();
  }

 private:
  using Entry = std::tuple<int64_t, int32_t, int32_t>;  // what it adds while it runs, its rank, the op

  void take(int32_t op) {
    const size_t known = state_.ready().size() - 1;
    state_.take(op);
    welcome(known);
    for (int32_t b : graph_.touches[op]) {
      ++used_[b];
      const auto users = graph_.users[b];
      const bool last_one_left = used_[b] + 1 == static_cast<int32_t>(users.size());
      const bool alive_now = used_[b] == 1 || !graph_.in_place[op].empty();
      if (State::kForward ? last_one_left : alive_now)
        for (int32_t user : users) consider(user);
    }
  }

  // Looks at the ops that became ready since there were `known`.
  void welcome(size_t known) {
    for (size_t i = known; i < state_.ready().size(); ++i) {
      ready_[state_.ready()[i]] = 1;
      consider(state_.ready()[i]);
    }
  }

  // Notes an op that does not raise live bytes any more, with what it adds while it runs.
  void consider(int32_t op) {
    if (!ready_[op] || state_.taken(op) || !state_.never_hinders(op)) return;
    state_.change(op, net_);
    if (std::any_of(net_.begin(), net_.end(), [](int64_t net) { return net > 0; })) return;
    state_.peak(op, peak_);
    int64_t rise = 0;
    for (int32_t s = 0; s < graph_.n_spaces; ++s) rise += peak_[s] - state_.live()[s];
    free_.push({rise, rank_[op], op});
  }

  // Takes the op that adds least while it runs; false when it does not fit now.
  bool try_top() {
    const int32_t op = std::get<2>(free_.top());
    if (!state_.taken(op)) {
      state_.peak(op, peak_);
      if (!fits(peak_, budget_)) return false;
      free_.pop();
      take(op);
    } else {
      free_.pop();
    }
    return true;
  }

  const GraphView& graph_;
  State state_;
  const Bytes budget_;
  std::span<const int32_t> order_;
  std::vector<int32_t> rank_;
  std::vector<uint8_t> ready_;
  std::vector<int32_t> used_;  // per buffer: uses taken
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> free_;
  Bytes net_, peak_;
};

}  // namespace

std::vector<int32_t> close_order(const GraphView& graph, bool in_place, std::span<const int32_t> order) {
  Closer<ForwardState> early(graph, in_place, evaluate(graph, order, in_place).peaks, order);
  std::vector<int32_t> turned = early.walk();
  const Bytes budget = evaluate(graph, turned, in_place).peaks;
  std::reverse(turned.begin(), turned.end());
  Closer<BackwardState> late(graph, in_place, budget, turned);
  std::vector<int32_t> result = late.walk();
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace lowtide
