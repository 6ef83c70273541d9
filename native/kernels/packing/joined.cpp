#include "kernels/packing/joined.hpp"

#include <bit>
#include <cmath>
#include <unordered_map>

#include "kernels/packing/canonical.hpp"
#include "kernels/packing/cuts.hpp"
#include "kernels/packing/rank.hpp"

namespace lowtide {
namespace {

constexpr std::array kDoubts{0.3, 1e9, 0.05, 0.02, 0.0, 0.1, 1.0};
constexpr uint64_t kInTurn = 8, kMostIdle = 64;  // attempts in a row that join as others did
constexpr int64_t kWorkPerItem = 64;             // about what joining one takes
constexpr int64_t kMostPadWork = 2'000'000, kMostCutWork = 8'000'000;  // of one attempt to join
constexpr int64_t kQuickWork = 100'000, kMomentWork = 2'000'000, kCutWork = 300'000;  // of one search, by the attempt
constexpr int32_t kFewestBlocks = 20, kMostBlocks = 150;  // between which pads and holes end
constexpr uint64_t kSteady = 4, kCutsInTurn = 16;         // attempts without variation, and with the same work
constexpr double kVaried = 3, kLeastDoubt = -8, kDoubtRange = 16;  // doublings

// The first attempts are bold and cautious in turn, without and with holes and pads; later ones draw all of it.
JoinRules rules_of(uint64_t attempt, int32_t joins) {
  JoinRules rules;
  rules.joins = joins;
  rules.seed = attempt + 1;
  auto drawn = [&](uint64_t what) { return noise(attempt, what); };
  bool with_holes = attempt % 4 >= 2, with_pads = attempt % 8 >= 4;
  rules.most_doubt = kDoubts[attempt % 2];
  if (attempt >= kInTurn) {
    rules.most_doubt = kDoubts[static_cast<size_t>(drawn(1) * kDoubts.size())];
    rules.variation = drawn(5);
    with_holes = drawn(2) < 0.5;
    with_pads = drawn(4) < 0.6;
  }
  if (with_holes) rules.hole_share = attempt < kInTurn ? 1 : 0.5 + 0.5 * drawn(3);
  if (with_pads) {
    rules.least_evidence = static_cast<int32_t>(3 * drawn(6)) - 1;
    rules.pads_until = kFewestBlocks + static_cast<int32_t>((kMostBlocks - kFewestBlocks) * drawn(17));
  }
  return rules;
}

// Attempts that look for cuts: whatever is left to draw, without holes, and with holes as long as many blocks are left, in turn.
CutRules cut_rules_of(uint64_t attempt) {
  CutRules rules;
  rules.seed = attempt + 1;
  if (attempt == 0) return rules;
  auto drawn = [&](uint64_t what) { return noise(attempt, what); };
  if (attempt >= kSteady) rules.variation = kVaried * drawn(1);
  if (drawn(3) >= 0.3) rules.most_doubt = std::exp2(kLeastDoubt + kDoubtRange * drawn(2));
  rules.both_ends = attempt % 2 == 0;
  rules.parallel_doubt = std::exp2((rules.both_ends ? 4 : -6) * drawn(4));
  if (rules.both_ends && drawn(5) >= 0.5) rules.half_doubt *= 10;
  rules.holes = attempt % 3 != 1;
  if (attempt % 3 == 0) rules.holes_until = kFewestBlocks + static_cast<int32_t>((kMostBlocks - kFewestBlocks) * drawn(7));
  return rules;
}

// One way to join, and how much work exact search of what is left may take.
struct Joined {
  BlockTree tree;
  int64_t work, most_search;
};

// The first attempt is short; then attempts by moments and by cuts take turns.
Joined join_in_turn(const PackItems& items, int64_t capacity, uint64_t turn, int32_t joins, int64_t most_work) {
  const bool cuts_too = (joins & kCuts) != 0;
  const uint64_t attempt = turn == 0 ? 0 : cuts_too ? (turn - 1) / 2 : turn - 1;
  auto more = [](int64_t work, uint64_t doublings) { return work << std::min(20, static_cast<int>(std::bit_width(doublings))); };
  if (turn > 1 && cuts_too && turn % 2 == 0) {
    CutRules rules = cut_rules_of(attempt);
    rules.most_work = std::min(most_work, kMostCutWork);
    Cuts cuts(items, capacity, rules);
    cuts.join();
    return {cuts.tree(), cuts.work(), more(kCutWork, attempt / kCutsInTurn)};
  }
  JoinRules rules = rules_of(attempt, joins);
  rules.most_work = std::min(most_work, kMostPadWork);
  Blocks blocks(items, capacity, rules);
  blocks.join();
  return {blocks.tree(), blocks.work(), turn == 0 ? kQuickWork : more(kMomentWork, attempt / kInTurn)};
}

// Tells blocks apart that differ, all but surely.
uint64_t mark_of(const BlockTree::Rest& rest) {
  uint64_t mark = rest.block.size();
  auto mix = [&](uint64_t figure) {
    mark = (mark ^ figure) * 0x9E3779B97F4A7C15u;
    mark ^= mark >> 29;
  };
  for (size_t k = 0; k < rest.block.size(); ++k) {
    mix(static_cast<uint64_t>(rest.first[k]));
    mix(static_cast<uint64_t>(rest.last[k]));
    mix(static_cast<uint64_t>(rest.sizes[k]));
  }
  return mark;
}

}  // namespace

PackFitResult fit_joined(const PackItems& items, int64_t capacity, int32_t joins, const PackLimits& limits) {
  PackFitResult result;
  std::unordered_map<uint64_t, int64_t> tried;  // the most work on blocks seen before
  for (uint64_t turn = 0, idle = 0; result.work < limits.work && idle < kMostIdle && limits.go_on(); ++turn, ++idle) {
    const Joined joined = join_in_turn(items, capacity, turn, joins, limits.work - result.work);
    const BlockTree& tree = joined.tree;
    result.work += joined.work + kWorkPerItem * items.n();
    const BlockTree::Rest rest = tree.rest();
    const int64_t most = joined.most_search;
    int64_t& before = tried[mark_of(rest)];
    if (before >= most) continue;
    before = most;
    idle = 0;
    for (int which = 0; which < 2 && result.work < limits.work && before < INT64_MAX; ++which) {
      const PackLimits here{std::min(most, limits.work - result.work), limits.go_on};
      PackFitResult found = which == 0 ? fit_canonically(rest.items(), rest.steps, tree.capacity(), kAllInferences, here)
                                       : fit_capacity(rest.items(), tree.capacity(), here);
      result.work += found.work;
      if (found.fit == PackFit::kImpossible) before = INT64_MAX;
      if (found.fit != PackFit::kFound) continue;
      std::vector<int64_t> offsets = tree.offsets(rest, found.offsets);
      if (height_of(items, offsets) > capacity) continue;
      result.fit = PackFit::kFound;
      result.offsets = std::move(offsets);
      return result;
    }
  }
  return result;
}

PackResult pack_joined_by_priority(const PackItems& items, int64_t target, const PackLimits& limits) {
  JoinRules rules;
  rules.joins = kParallel | kSeries | kWheel;
  rules.most_doubt = kDoubts[0];
  Blocks blocks(items, target, rules);
  blocks.join();
  const BlockTree::Rest rest = blocks.tree().rest();
  PackResult result = pack_by_priority(rest.items(), blocks.tree().capacity(), true, limits);
  result.offsets = blocks.tree().offsets(rest, result.offsets);
  result.height = height_of(items, result.offsets);
  result.work += blocks.work();
  return result;
}

}  // namespace lowtide
