#include "kernels/search/fit_search.hpp"

#include <numeric>

#include "kernels/program/evaluate.hpp"
#include "kernels/search/fit_walk.hpp"
#include "kernels/program/precedence.hpp"

namespace lowtide {
namespace {

constexpr int64_t kFirstPhase = 10'000'000;  // work of deducing and walking together
constexpr int64_t kPhaseGrowth = 4;
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

void lower(Bytes& figures, const Bytes& others) {
  for (size_t s = 0; s < figures.size(); ++s) figures[s] = std::min(figures[s], others[s]);
}

// Walks forward and backward by turns; adds to `result` until it is decided or about `max_work` more was done.
void walk(const GraphView& graph, bool in_place, const Bytes& budget, std::span<const int32_t> preference,
          const std::vector<CriticalOp>& critical, int64_t max_work, const std::function<bool()>& go_on,
          FitResult& result) {
  FitWalk<ForwardState> forward(graph, in_place, budget, preference, critical);
  FitWalk<BackwardState> backward(graph, in_place, budget, preference, critical);
  for (int64_t round = kFirstRound; result.fit == Fit::kStopped; round *= 2) {
    result.fit = forward.search(backward.settled(), round, go_on);
    if (result.fit == Fit::kStopped) result.fit = backward.search(forward.settled(), round, go_on);
    if (forward.work + backward.work >= max_work || !go_on()) break;
  }
  result.states += forward.states + backward.states;
  result.flows += forward.flows + backward.flows;
  result.work += forward.work + backward.work;
  lower(result.next_budget, forward.turned_away());
  lower(result.next_budget, backward.turned_away());
  if (result.fit == Fit::kFound) {  // one direction took everything that the other had not settled
    const auto head = forward.done() ? std::span(forward.path()) : forward.settled();
    const auto tail = forward.done() ? backward.settled() : std::span(backward.path());
    result.order.assign(head.begin(), head.end());
    result.order.insert(result.order.end(), tail.rbegin(), tail.rend());
  }
}

}  // namespace

FitResult find_fit(const GraphView& given, bool in_place, const Bytes& budget, std::span<const int32_t> preference,
                   const FitLimits& limits) {
  FitResult result;
  result.next_budget.assign(given.n_spaces, INT64_MAX);
  const auto evaluation = evaluate(given, preference, in_place, true);
  std::vector<std::vector<int32_t>> worst;  // per space
  std::vector<CriticalOp> critical;
  for (int32_t s = 0; s < given.n_spaces; ++s) {
    worst.push_back(worst_first(given, evaluation, preference, s));
    for (size_t i = 0; i < worst[s].size() && i < kCriticalOps; ++i) critical.push_back({worst[s][i], s});
  }
  TightenedGraph tightened(given);
  // Deducing and walking get equal shares that grow: neither can keep the other from an easy success.
  for (int64_t phase = kFirstPhase;; phase *= kPhaseGrowth) {
    const int64_t share = std::min(phase, limits.work - result.work) / 2;
    for (int32_t s = 0; s < given.n_spaces; ++s) {
      const auto found = tighten(tightened, s, in_place, budget[s], worst[s], share / given.n_spaces, limits.go_on);
      result.next_budget[s] = std::min(result.next_budget[s], found.next_budget);
      result.edges += static_cast<int64_t>(found.deduced.size());
      result.work += found.work;
      if (!found.possible) {
        result.fit = Fit::kImpossible;
        return result;
      }
    }
    walk(tightened.view, in_place, budget, preference, critical, share, limits.go_on, result);
    if (result.fit != Fit::kStopped || result.work >= limits.work || !limits.go_on()) return result;
  }
}

}  // namespace lowtide
