#include "kernels/packing/blocks.hpp"

#include <cmath>
#include <map>

#include "kernels/packing/rank.hpp"

namespace lowtide {
namespace {

constexpr double kNone = 1e300;
constexpr size_t kMostPairs = 4096, kMostAround = 32;  // moments with more are passed over
constexpr double kShare = 1024;                        // doubt is counted in so many parts of the capacity
constexpr double kEvidence = 10;  // an end that balances outweighs so many doublings of a pad

int64_t life_of(int32_t first, int32_t last) { return (static_cast<int64_t>(first) << 32) | last; }

}  // namespace

Blocks::Blocks(const PackItems& items, int64_t capacity, const JoinRules& rules)
    : tree_(items, capacity), rules_(rules), n_moments_(tree_.n_moments()), places_(items.n()), gain_(tree_.gains()),
      spare_(tree_.spare()) {
  born_.resize(n_moments_);
  dying_.resize(n_moments_);
  doubt_at_.assign(n_moments_, kNone);
}

double Blocks::varied(uint64_t one, uint64_t two) const {
  return rules_.variation == 0 ? 1.0 : 1.0 + rules_.variation * noise(rules_.seed * 1013 + one, two);
}

int32_t Blocks::make(int32_t first, int32_t last, int64_t size, Kind kind, std::array<int32_t, 5> parts) {
  places_.push_back({});
  return add(tree_.make(first, last, size, kind, parts));
}

// Adds a block, at once on top of another of the same life.
int32_t Blocks::add(int32_t id) {
  const BlockTree::Block block = tree_[id];
  if (allowed(kParallel)) {
    const auto [place, is_new] = of_life_.try_emplace(life_of(block.first, block.last), id);
    if (!is_new) {
      const int32_t below = place->second;
      remove(below);
      return make(block.first, block.last, block.size + tree_[below].size, Kind::kParallel, {below, id});
    }
  }
  tree_.set_alive(id, true);
  places_[id] = {static_cast<int32_t>(born_[block.first].size()), static_cast<int32_t>(dying_[block.last].size())};
  born_[block.first].push_back(id);
  dying_[block.last].push_back(id);
  return id;
}

void Blocks::remove(int32_t id) {
  const BlockTree::Block& block = tree_[id];
  auto& born = born_[block.first];
  auto& dying = dying_[block.last];
  born[places_[id].born] = born.back();
  places_[born.back()].born = places_[id].born;
  born.pop_back();
  dying[places_[id].dying] = dying.back();
  places_[dying.back()].dying = places_[id].dying;
  dying.pop_back();
  tree_.set_alive(id, false);
  if (allowed(kParallel)) of_life_.erase(life_of(block.first, block.last));
}

// The two blocks that are joined at a moment with the least doubt, the first of them returned (-1: none).
int32_t Blocks::find_series(int32_t moment, int32_t& second, double& doubt) {
  const auto& dying = dying_[moment];
  const auto& born = born_[moment];
  const size_t pairs = dying.size() * born.size();
  int32_t first = -1;
  doubt = kNone;
  if (pairs == 0 || pairs > kMostPairs) return first;
  work_ += static_cast<int64_t>(pairs);
  const double others = static_cast<double>(pairs - 1) * (gain_[moment] == 0 ? 1 : 2);
  for (int32_t one : dying)
    for (int32_t two : born) {
      const BlockTree::Block &before = tree_[one], &after = tree_[two];
      if (before.size != after.size || (before.kind == Kind::kHole && after.kind == Kind::kHole)) continue;
      const double share = static_cast<double>(before.size) * kShare / static_cast<double>(tree_.capacity());
      if (const double here = others / share * varied(one, two); here < doubt) {
        doubt = here;
        first = one;
        second = two;
      }
    }
  return first;
}

void Blocks::look_again(int32_t moment) {
  if (moment == 0 || moment == n_moments_ - 1) return;
  if (doubt_at_[moment] < kNone) doubts_.erase({doubt_at_[moment], moment});
  int32_t second = -1;
  find_series(moment, second, doubt_at_[moment]);
  if (doubt_at_[moment] < kNone) doubts_.insert({doubt_at_[moment], moment});
}

bool Blocks::join_series() {
  if (doubts_.empty() || doubts_.begin()->first > rules_.most_doubt) return false;
  const int32_t moment = doubts_.begin()->second;
  int32_t second = -1;
  double doubt = 0;
  const int32_t first = find_series(moment, second, doubt);
  const int32_t begin = tree_[first].first, end = tree_[second].last;
  remove(first);
  remove(second);
  make(begin, end, tree_[first].size, Kind::kSeries, {first, second});
  for (int32_t changed : {begin, moment, end}) look_again(changed);
  return true;
}

// A wheel: the left block dies and the middle and the top one are born early, the bottom and the middle one die and the right
// one is born late; left = middle + top, right = bottom + middle.
bool Blocks::join_wheel_at(int32_t early) {
  const auto& born = born_[early];
  const auto& dying = dying_[early];
  if (born.size() > kMostAround || dying.size() > kMostAround) return false;
  for (int32_t middle : born)
    for (int32_t left : dying)
      for (int32_t bottom : born_[tree_[left].first]) {
        ++work_;
        const int32_t late = tree_[middle].last;
        if (tree_[bottom].last != late) continue;
        for (int32_t right : born_[late]) {
          if (tree_[right].size != tree_[bottom].size + tree_[middle].size) continue;
          for (int32_t top : born) {
            ++work_;
            if (top == middle || tree_[top].last != tree_[right].last ||
                tree_[top].size + tree_[middle].size != tree_[left].size)
              continue;
            const int32_t begin = tree_[left].first, end = tree_[right].last;
            const int64_t size = tree_[left].size + tree_[bottom].size;
            const std::array<int32_t, 5> parts{bottom, left, middle, top, right};
            for (int32_t part : parts) remove(part);
            make(begin, end, size, Kind::kWheel, parts);
            for (int32_t changed : {begin, early, late, end}) look_again(changed);
            return true;
          }
        }
      }
  return false;
}

bool Blocks::join_wheels() {
  bool any = false;
  for (int32_t early = 1; early < n_moments_ - 1; ++early) any = join_wheel_at(early) || any;
  return any;
}

void Blocks::join_exactly() {
  do
    while (allowed(kSeries) && join_series()) {
    }
  while (allowed(kWheel) && join_wheels());
}

int64_t Blocks::least_spare(int32_t first, int32_t last) {
  work_ += last - first;
  return *std::min_element(spare_.begin() + first, spare_.begin() + last);
}

void Blocks::add_hole(int32_t first, int32_t last, int64_t size) {
  for (int32_t s = first; s < last; ++s) spare_[s] -= size;
  gain_[first] += size;
  gain_[last] -= size;
  make(first, last, size, Kind::kHole, {});
}

// A moment at which fewer bytes are born than die, and a later one at which as many more are: a hole lies between them.
void Blocks::fill_holes() {
  for (bool any = true; any;) {
    any = false;
    std::map<int64_t, std::pair<std::vector<int32_t>, std::vector<int32_t>>> ends;
    for (int32_t t = 0; t < n_moments_; ++t)
      if (gain_[t] < 0) ends[-gain_[t]].first.push_back(t);
      else if (gain_[t] > 0) ends[gain_[t]].second.push_back(t);
    for (auto size = ends.rbegin(); size != ends.rend(); ++size)
      for (int32_t first : size->second.first) {
        auto& lasts = size->second.second;
        const auto last = std::find_if(lasts.begin(), lasts.end(), [&](int32_t t) {
          return t > first && least_spare(first, t) >= size->first;
        });
        if (last == lasts.end() || noise(rules_.seed * 31 + first, *last) > rules_.hole_share) continue;
        add_hole(first, *last, size->first);
        lasts.erase(last);
        any = true;
      }
  }
}

void Blocks::consider(int32_t first, int32_t last, int64_t size, Pad& best) {
  if (size <= 0 || first >= last) return;
  const int evidence = (gain_[first] == -size) + (gain_[last] == size) - (gain_[first] == 0) - (gain_[last] == 0);
  if (evidence < rules_.least_evidence) return;
  const double area = static_cast<double>(size) * kShare / static_cast<double>(tree_.capacity()) * (last - first);
  const double price = std::log2(area + 1) * varied(life_of(first, last), size) - kEvidence * evidence;
  if (price < best.price && least_spare(first, last) >= size) best = {price, first, last, size};
}

// Fills the cheapest empty rectangle that makes two blocks one size where they meet, or one life.
bool Blocks::add_pad() {
  Pad best{kNone, 0, 0, 0};
  for (int32_t t = 0; t < n_moments_; ++t) {
    const auto& born = born_[t];
    const auto& dying = dying_[t];
    work_ += static_cast<int64_t>(born.size() + dying.size());
    if (born.size() > kMostAround || dying.size() > kMostAround) continue;
    for (int32_t one : dying)
      for (int32_t two : born) {
        const int64_t more = tree_[one].size - tree_[two].size;
        if (more > 0) consider(t, tree_[two].last, more, best);
        else consider(tree_[one].first, t, -more, best);
      }
    for (int32_t one : born)
      for (int32_t two : born) consider(tree_[one].last, tree_[two].last, tree_[one].size, best);
    for (int32_t one : dying)
      for (int32_t two : dying) consider(tree_[two].first, tree_[one].first, tree_[one].size, best);
  }
  if (best.price == kNone) return false;
  add_hole(best.first, best.last, best.size);
  look_again(best.first);
  look_again(best.last);
  return true;
}

void Blocks::join() {
  for (int32_t i = 0; i < tree_.n_items(); ++i) add(i);
  work_ += tree_.n_items();
  if (allowed(kHoles) && rules_.hole_share > 0) fill_holes();
  for (int32_t t = 0; t < n_moments_; ++t) look_again(t);
  join_exactly();
  for (int64_t pads = 0; allowed(kPads) && tree_.n_left() > rules_.pads_until && pads < tree_.n_items() && work_ < rules_.most_work; ++pads) {
    if (!add_pad()) break;
    join_exactly();
  }
}

}  // namespace lowtide
