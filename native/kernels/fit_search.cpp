#include "kernels/fit_search.hpp"

#include <numeric>

#include "kernels/evaluate.hpp"
#include "kernels/fit_walk.hpp"
#include "kernels/precedence.hpp"

namespace lowtide {
namespace {

constexpr int64_t kFirstRound = 1'000'000;  // work of the first turn of each direction
constexpr size_t kCriticalOps = 16;         // per memory space

// Ops by their live bytes in one space under an order, most first.
std::vector<int32_t> worst_first(const GraphView& graph, const Evaluation& evaluation, std::span<const int32_t> order,
                                 int32_t space) {
  std::vector<int32_t> places(order.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int32_t a, int32_t b) {
    return evaluation.profile[int64_t{a} * graph.n_spaces + space] >
           evaluation.profile[int64_t{b} * graph.n_spaces + space];
  });
  std::vector<int32_t> ops(order.size());
  for (size_t i = 0; i < ops.size(); ++i) ops[i] = order[places[i]];
  return ops;
}

}  // namespace

FitResult find_fit(const GraphView& given, bool in_place, const Bytes& budget, std::span<const int32_t> preference,
                   const FitLimits& limits) {
  FitResult result;
  result.next_budget.assign(given.n_spaces, INT64_MAX);
  TightenedGraph tightened(given);
  std::vector<CriticalOp> critical;
  const auto evaluation = evaluate(given, preference, in_place, true);
  for (int32_t s = 0; s < given.n_spaces; ++s) {
    const auto ops = worst_first(given, evaluation, preference, s);
    const auto tightening = tighten(tightened, s, in_place, budget[s], ops, limits.work / 2, limits.go_on);
    result.next_budget[s] = tightening.next_budget;
    result.edges += tightening.edges;
    result.work += tightening.work;
    if (!tightening.possible) {
      result.fit = Fit::kImpossible;
      return result;
    }
    for (size_t i = 0; i < ops.size() && i < kCriticalOps; ++i) critical.push_back({ops[i], s});
  }

  FitWalk<ForwardState> forward(tightened.view, in_place, budget, preference, critical);
  FitWalk<BackwardState> backward(tightened.view, in_place, budget, preference, critical);
  result.fit = Fit::kStopped;
  for (int64_t round = kFirstRound; result.fit == Fit::kStopped; round *= 2) {
    result.fit = forward.search(backward.settled(), round, limits.go_on);
    if (result.fit == Fit::kStopped) result.fit = backward.search(forward.settled(), round, limits.go_on);
    if (result.work + forward.work + backward.work >= limits.work || !limits.go_on()) break;
  }
  result.states = forward.states + backward.states;
  result.flows = forward.flows + backward.flows;
  result.work += forward.work + backward.work;
  for (int32_t s = 0; s < given.n_spaces; ++s)
    result.next_budget[s] = std::min({result.next_budget[s], forward.turned_away()[s], backward.turned_away()[s]});
  if (result.fit == Fit::kFound) {  // one direction took everything that the other had not settled
    const auto head = forward.done() ? std::span(forward.path()) : forward.settled();
    const auto tail = forward.done() ? backward.settled() : std::span(backward.path());
    result.order.assign(head.begin(), head.end());
    result.order.insert(result.order.end(), tail.rbegin(), tail.rend());
  }
  return result;
}

}  // namespace lowtide
