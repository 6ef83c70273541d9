// Splits of what one moment hides, and parallel joins, which they forbid.
#include "kernels/packing/cuts.hpp"

namespace lowtide {
namespace {

constexpr size_t kMostPairs = 24, kMostQuads = 12;  // dying or born at cuts that are searched for more than single blocks
constexpr double kUnbalanced = 2, kRival = 0.5;     // at a cut with a gain; where the choice is not clear
constexpr double kWhole = 0.95, kLeastTries = 0.05;  // of the pairs at a cut that balances, one agrees if all do

double pairs_of(double n) { return n * (n - 1) / 2; }

}  // namespace

// One or two blocks that die at a cut and one or two that are born, of one size: the doubt is how many of them chance offers.
Cuts::Choice Cuts::best_split(int32_t cut) {
  Choice best;
  const auto& [moment, gain, dying, born] = cuts_[cut];
  if (at_edge(cut) || dying.empty() || born.empty()) return best;
  const size_t most = std::max(dying.size(), born.size());
  const bool balances = gain == 0;
  if (balances && dying.size() + born.size() < 4) return best;
  const double n_dying = static_cast<double>(dying.size()), n_born = static_cast<double>(born.size());
  const double gap = balances ? 1 : kUnbalanced;
  auto is_whole = [&](size_t died, size_t new_ones) {
    return balances && died == dying.size() && new_ones == born.size();
  };
  auto consider = [&](double tries, int64_t bytes, const std::array<int32_t, 5>& blocks) {
    const double doubt = tries * coincidence(bytes) * gap;
    offer({doubt * varied(blocks[0] + int64_t{77} * (blocks[1] + 1), blocks[2] + int64_t{77} * (blocks[3] + 1)), Step::kSplit,
           blocks},
          best);
  };
  const double singles = balances && dying.size() == 2 && born.size() == 2 ? 2 : n_dying * n_born;
  work_ += static_cast<int64_t>(dying.size() * born.size());
  for (int32_t one : dying)
    for (int32_t two : born) {
      if (size(one) != size(two) || is_whole(1, 1)) continue;
      auto like = [&](int32_t block) { return size(block) == size(one); };
      const auto rivals = std::count_if(dying.begin(), dying.end(), like) + std::count_if(born.begin(), born.end(), like) - 2;
      const double tries = std::max(kLeastTries, singles - (balances ? kWhole : 0));
      const double two_holes = tree_.is_hole(one) && tree_.is_hole(two) ? 1 : 0;
      offer({(tries * coincidence(size(one)) * gap + kRival * static_cast<double>(rivals)) * varied(one, two) + two_holes,
             Step::kSplit, {one, -1, two, -1, -1}},
            best);
    }
  if (most > kMostPairs) return best;
  work_ += static_cast<int64_t>(dying.size() * born.size() * (dying.size() + born.size()) / 2);
  const double with_two = singles + n_dying * pairs_of(n_born) + n_born * pairs_of(n_dying);
  for (size_t i = 0; i < born.size(); ++i)
    for (size_t j = 0; j < i && !is_whole(1, 2); ++j)
      for (int32_t one : dying)
        if (size(one) == size(born[i]) + size(born[j])) consider(with_two, size(one), {one, -1, born[j], born[i], -1});
  for (size_t i = 0; i < dying.size(); ++i)
    for (size_t j = 0; j < i && !is_whole(2, 1); ++j)
      for (int32_t one : born)
        if (size(one) == size(dying[i]) + size(dying[j])) consider(with_two, size(one), {dying[j], dying[i], one, -1, -1});
  if (most > kMostQuads || is_whole(2, 2)) return best;
  const double two_by_two = with_two + pairs_of(n_dying) * pairs_of(n_born);
  work_ += static_cast<int64_t>(pairs_of(n_dying) * pairs_of(n_born));
  for (size_t a = 0; a < dying.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      const int64_t bytes = size(dying[a]) + size(dying[b]);
      for (size_t i = 0; i < born.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          if (size(born[i]) + size(born[j]) == bytes) consider(two_by_two, bytes, {dying[b], dying[a], born[j], born[i], -1});
    }
  return best;
}

// Two blocks between the same two cuts.
void Cuts::offer_parallel(int32_t cut, Choice& best) {
  const std::vector<int32_t>& born = cuts_[cut].born;
  work_ += static_cast<int64_t>(pairs_of(static_cast<double>(born.size())));
  for (size_t i = 0; i < born.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const int32_t dying = ends_[born[i]].dying;
      if (dying != ends_[born[j]].dying) continue;
      const double here = hidden_split(cut), there = hidden_split(dying);
      const double doubt = std::max(1e-12, (rules_.both_ends ? here * there : here + there) * rules_.parallel_doubt);
      offer({doubt * varied(born[i], born[j]), Step::kParallel, {born[j], born[i], -1, -1, -1}}, best);
    }
}

}  // namespace lowtide
