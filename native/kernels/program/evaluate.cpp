#include "kernels/program/evaluate.hpp"

#include "kernels/program/in_place.hpp"

namespace lowtide {

Evaluation evaluate(const GraphView& graph, std::span<const int32_t> order, bool in_place, bool with_profile) {
  std::vector<int64_t> live(graph.n_spaces, 0);
  std::vector<int32_t> uses_left(graph.n_buffers);
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    uses_left[b] = static_cast<int32_t>(graph.users[b].size());
    if (graph.lifetimes[b] == kInput || graph.lifetimes[b] == kDonated) live[graph.spaces[b]] += graph.sizes[b];
  }
  Evaluation result{live, std::vector<int32_t>(graph.n_spaces, -1), {}, {}};
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    if (graph.lifetimes[b] == kDonated && uses_left[b] == 0) live[graph.spaces[b]] -= graph.sizes[b];

  InPlaceMatcher matcher(graph);
  for (size_t place = 0; place < order.size(); ++place) {
    const int32_t op = order[place];
    const size_t first_pair = result.pairs.size();
    if (in_place) matcher.match(op, [&](int32_t b) { return uses_left[b] == 1; }, result.pairs);
    for (int32_t b : graph.allocates[op]) live[graph.spaces[b]] += graph.sizes[b];
    for (size_t p = first_pair; p < result.pairs.size(); ++p) {
      const int32_t read = result.pairs[p].read;
      live[graph.spaces[read]] -= graph.sizes[read];
    }
    for (int32_t s = 0; s < graph.n_spaces; ++s) {
      const int64_t now = live[s] + graph.scratch[int64_t{op} * graph.n_spaces + s];
      if (with_profile) result.profile.push_back(now);
      if (now > result.peaks[s]) {
        result.peaks[s] = now;
        result.peak_places[s] = static_cast<int32_t>(place);
      }
    }
    for (size_t p = first_pair; p < result.pairs.size(); ++p) {
      const int32_t read = result.pairs[p].read;
      live[graph.spaces[read]] += graph.sizes[read];  // freed like any other below
    }
    for (int32_t b : graph.touches[op])
      if (--uses_left[b] == 0 && graph.freeable(b)) live[graph.spaces[b]] -= graph.sizes[b];
    for (int32_t b : graph.allocates[op])
      if (uses_left[b] == 0 && graph.freeable(b)) live[graph.spaces[b]] -= graph.sizes[b];
  }
  return result;
}

}  // namespace lowtide
