#include "kernels/search/refutation.hpp"

#include <algorithm>

#include "kernels/search/refutation_walk.hpp"

namespace lowtide {
namespace {

constexpr size_t kTightenedOps = 64;  // that dependencies are deduced from inside a case
constexpr size_t kDecidingOps = 24;   // whose mutual orders are looked at for cases
constexpr int kMostCases = 40;        // within one another
constexpr int64_t kShareOfOneCase = 16;  // of the work that is left, for deducing what holds in it

class Refuter {
 public:
  Refuter(int32_t space, bool in_place, int64_t budget, std::span<const int32_t> worst_first, int64_t max_work,
          const std::function<bool()>& go_on)
      : space_(space), in_place_(in_place), budget_(budget), worst_(worst_first), work_left_(max_work), go_on_(go_on) {}

  std::vector<RefutationLine> lines;

  bool refute(TightenedGraph& graph, int depth) {
    const auto ops = depth == 0 ? worst_ : worst_.first(std::min(worst_.size(), kTightenedOps));
    const auto found = tighten(graph, space_, in_place_, budget_, ops, work_left_ / kShareOfOneCase, go_on_);
    work_left_ -= found.work;
    for (const auto& [op, earlier, later] : found.deduced) write(RefutationLine::kNeed, op, earlier, later);
    if (!found.possible) {
      write(found.over < 0 ? RefutationLine::kCycle : RefutationLine::kOver, found.over);
      return true;
    }
    if (work_left_ <= 0 || depth == kMostCases || !go_on_()) return false;
    const auto [one, other] = deciding_pair(graph.view);
    if (one < 0) return false;
    write(RefutationLine::kEither, one, other);
    return refute_case(graph.view, one, other, depth) && refute_case(graph.view, other, one, depth);
  }

 private:
  bool refute_case(const GraphView& graph, int32_t earlier, int32_t later, int depth) {
    TightenedGraph inside(graph);
    if (!add_edges(inside, {{earlier, later}})) {
      write(RefutationLine::kCycle);
      return true;
    }
    return refute(inside, depth + 1);
  }

  // The pair of ops for which the better of both orders makes an op need most, of the worst ops that leave any open;
  // (-1, -1) where there is none.
  std::pair<int32_t, int32_t> deciding_pair(const GraphView& graph) {
    for (size_t first = 0; first < worst_.size() && work_left_ > 0; first += kDecidingOps) {
      const auto pair = deciding_pair(graph, worst_.subspan(first, std::min(kDecidingOps, worst_.size() - first)));
      if (pair.first >= 0) return pair;
    }
    return {-1, -1};
  }

  std::pair<int32_t, int32_t> deciding_pair(const GraphView& graph, std::span<const int32_t> ops) {
    const size_t n = ops.size();
    std::vector<int64_t> need(n * n, -1);  // what either of both needs at least if the one of the row runs first
    for (size_t i = 0; i < n && work_left_ > 0; ++i) {
      ClosureCutter cutter(graph, space_, in_place_);
      ClosureCutter::Probe probe(cutter, ops[i]);
      for (size_t j = 0; j < n; ++j) {
        if (j == i || !probe.is_free(ops[j])) continue;
        need[i * n + j] = std::max(need[i * n + j], probe.peak_with(ops[j], false));
        need[j * n + i] = std::max(need[j * n + i], probe.peak_with(ops[j], true));
      }
      work_left_ -= probe.work();
    }
    std::pair<int32_t, int32_t> best{-1, -1};
    std::pair<int64_t, int64_t> score{-1, -1};
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < i; ++j) {
        const std::pair now = std::minmax({need[i * n + j], need[j * n + i]});
        if (now.first >= 0 && now > score) score = now, best = {ops[i], ops[j]};
      }
    return best;
  }

  void write(RefutationLine::Kind kind, int32_t op = -1, int32_t earlier = -1, int32_t later = -1) {
    lines.push_back({{kind, op, earlier, later}});
  }

  const int32_t space_;
  const bool in_place_;
  const int64_t budget_;
  const std::span<const int32_t> worst_;
  int64_t work_left_;
  const std::function<bool()>& go_on_;
};

}  // namespace

std::vector<RefutationLine> refute(const GraphView& graph, int32_t space, bool in_place, int64_t budget,
                                   std::span<const int32_t> worst_first, int64_t max_work,
                                   const std::function<bool()>& go_on) {
  Refuter refuter(space, in_place, budget, worst_first, max_work, go_on);
  TightenedGraph tightened(graph);
  if (refuter.refute(tightened, 0)) return std::move(refuter.lines);
  auto& lines = refuter.lines;  // what was deduced before any case holds still
  lines.erase(std::find_if(lines.begin(), lines.end(), [](auto& line) { return line.values[0] != RefutationLine::kNeed; }), lines.end());
  if (refute_by_walk(tightened.view, space, in_place, budget, worst_first, max_work, go_on, lines)) return std::move(lines);
  return {};
}

}  // namespace lowtide
