// What chance alone would offer a search for cuts.
#include <cmath>

#include "kernels/packing/cuts.hpp"
#include "kernels/packing/rank.hpp"

namespace lowtide {
namespace {

constexpr double kUnbalances = 8, kAgainst = 2;  // a hole that ends where all balanced, or where it makes the gap wider
constexpr double kOfLife = 0.01;                 // two blocks live equally long by chance
constexpr double kUnknown = 0.05, kPerBlock = 0.003, kLikely = 0.05;
constexpr double kLeast = 1e-9;

}  // namespace

double Cuts::varied(uint64_t one, uint64_t two) const {
  if (rules_.variation == 0) return 1;
  return std::exp2(rules_.variation * (2 * noise(rules_.seed * 1013 + one, two) - 1));
}

// How likely a figure is to be this size: as many items as have about that size share it evenly, or as many have just that.
double Cuts::coincidence(int64_t size) {
  const auto [place, is_new] = coincidences_.try_emplace(size, 0.0);
  if (!is_new) return place->second;
  auto below = [&](int64_t bound) {
    return static_cast<double>(std::lower_bound(sizes_.begin(), sizes_.end(), bound) - sizes_.begin());
  };
  const double n = static_cast<double>(sizes_.size()), range = static_cast<double>(2 * size - size / 2);
  const double about = (below(2 * size + 1) - below(size / 2 + 1) + 1) / (n + 1) * static_cast<double>(unit_) / range;
  const double same = (below(size + 1) - below(size) - 1) / n;
  return place->second = std::min(1.0, std::max(about, same));
}

// What the end of a hole at a cut says about it: little doubt where it balances what is born and what dies.
double Cuts::end_doubt(int32_t cut, int64_t change, int64_t size) {
  const int64_t gain = cuts_[cut].gain;
  if (gain + change == 0) return coincidence(size);
  if (gain == 0) return kUnbalances;
  return (gain < 0) == (change > 0) ? 1 : kAgainst;
}

// How likely two blocks at a cut belong to two cuts that are not split yet.
double Cuts::hidden_split(int32_t cut) const {
  if (at_edge(cut)) return 0;
  const double others = static_cast<double>(cuts_[cut].dying.size() + cuts_[cut].born.size()) - 3;
  if (others <= 0 && cuts_[cut].gain == 0) return 0;
  const double unseen = cuts_[cut].gain != 0 ? kUnknown * (others + 1) : kPerBlock * others;
  const double doubt = splits_[cut].doubt;
  return std::min(1.0, std::max(unseen, doubt < kNever ? kLikely / (kLikely + doubt) : 0.0));
}

// A hole lets `one` and `other` be joined: less doubt where the block they become can be joined at once in turn.
double Cuts::follow_up(int32_t first, int32_t last, int64_t size, int32_t one, int32_t other) {
  double doubt = 1;
  for (int32_t block : cuts_[first].born)
    if (ends_[block].dying == last && block != one && block != other) doubt = kOfLife;
  auto fits = [&](int32_t cut, const std::vector<int32_t>& blocks) {
    if (at_edge(cut) || std::none_of(blocks.begin(), blocks.end(), [&](int32_t b) { return this->size(b) == size; })) return;
    doubt = std::min(doubt, std::max(kLeast, coincidence(size) * static_cast<double>(blocks.size())));
  };
  fits(first, cuts_[first].dying);
  fits(last, cuts_[last].born);
  return doubt;
}

}  // namespace lowtide
