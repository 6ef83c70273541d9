#include "kernels/pack_blocks.hpp"

#include <cmath>
#include <map>
#include <numeric>

#include "kernels/pack_rank.hpp"

namespace lowtide {
namespace {

constexpr double kNone = 1e300;
constexpr size_t kMostPairs = 4096, kMostAround = 32;  // moments with more are passed over
constexpr double kShare = 1024;                        // doubt is counted in so many parts of the capacity
constexpr double kEvidence = 10;  // an end that balances outweighs so many doublings of a pad

int64_t life_of(int32_t first, int32_t last) { return (static_cast<int64_t>(first) << 32) | last; }

}  // namespace

Blocks::Blocks(const PackItems& items, int64_t capacity, const JoinRules& rules)
    : items_(items), rules_(rules), n_moments_(items.n_sections() + 1) {
  for (int64_t alignment : items.alignment) granule_ = std::lcm(granule_, alignment);
  capacity_ = aligned(capacity, granule_);
  born_.resize(n_moments_);
  dying_.resize(n_moments_);
  gain_.assign(n_moments_, 0);
  spare_.assign(n_moments_, capacity_);
  doubt_at_.assign(n_moments_, kNone);
  gain_.front() = -capacity_;
  gain_.back() += capacity_;
  blocks_.reserve(2 * static_cast<size_t>(items.n()));
  for (int32_t i = 0; i < items.n(); ++i) {
    const int64_t size = aligned(items.sizes[i], granule_);
    gain_[items.first[i]] += size;
    gain_[items.last[i]] -= size;
  }
  int64_t live = 0;
  for (int32_t s = 0; s < n_moments_; ++s) {
    live += gain_[s] + (s == 0 ? capacity_ : 0);
    spare_[s] = capacity_ - live;
  }
  for (int32_t i = 0; i < items.n(); ++i) {
    blocks_.push_back({items.first[i], items.last[i], aligned(items.sizes[i], granule_), Kind::kItem, {}});
    alive_.push_back(0);
  }
}

double Blocks::varied(uint64_t one, uint64_t two) const {
  return rules_.variation == 0 ? 1.0 : 1.0 + rules_.variation * noise(rules_.seed * 1013 + one, two);
}

// Adds a block, at once on top of another of the same life.
int32_t Blocks::add(int32_t first, int32_t last, int64_t size, Kind kind, std::array<int32_t, 5> parts) {
  auto id = static_cast<int32_t>(blocks_.size());
  if (kind == Kind::kItem) {
    id = parts[0];
  } else {
    blocks_.push_back({first, last, size, kind, parts});
    alive_.push_back(0);
  }
  if (allowed(kParallel)) {
    const auto [place, is_new] = of_life_.try_emplace(life_of(first, last), id);
    if (!is_new) {
      const int32_t below = place->second;
      remove(below);
      return add(first, last, size + blocks_[below].size, Kind::kParallel, {below, id});
    }
  }
  Block& block = blocks_[id];
  alive_[id] = 1;
  n_left_ += kind != Kind::kHole;
  block.born_at = static_cast<int32_t>(born_[first].size());
  block.dying_at = static_cast<int32_t>(dying_[last].size());
  born_[first].push_back(id);
  dying_[last].push_back(id);
  return id;
}

void Blocks::remove(int32_t id) {
  const Block& block = blocks_[id];
  auto& born = born_[block.first];
  auto& dying = dying_[block.last];
  born[block.born_at] = born.back();
  blocks_[born.back()].born_at = block.born_at;
  born.pop_back();
  dying[block.dying_at] = dying.back();
  blocks_[dying.back()].dying_at = block.dying_at;
  dying.pop_back();
  alive_[id] = 0;
  n_left_ -= block.kind != Kind::kHole;
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
      const Block &before = blocks_[one], &after = blocks_[two];
      if (before.size != after.size || (before.kind == Kind::kHole && after.kind == Kind::kHole)) continue;
      const double share = static_cast<double>(before.size) * kShare / static_cast<double>(capacity_);
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
  const int32_t begin = blocks_[first].first, end = blocks_[second].last;
  remove(first);
  remove(second);
  add(begin, end, blocks_[first].size, Kind::kSeries, {first, second});
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
      for (int32_t bottom : born_[blocks_[left].first]) {
        ++work_;
        const int32_t late = blocks_[middle].last;
        if (blocks_[bottom].last != late) continue;
        for (int32_t right : born_[late]) {
          if (blocks_[right].size != blocks_[bottom].size + blocks_[middle].size) continue;
          for (int32_t top : born) {
            ++work_;
            if (top == middle || blocks_[top].last != blocks_[right].last ||
                blocks_[top].size + blocks_[middle].size != blocks_[left].size)
              continue;
            const int32_t begin = blocks_[left].first, end = blocks_[right].last;
            const int64_t size = blocks_[left].size + blocks_[bottom].size;
            const std::array<int32_t, 5> parts{bottom, left, middle, top, right};
            for (int32_t part : parts) remove(part);
            add(begin, end, size, Kind::kWheel, parts);
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
  add(first, last, size, Kind::kHole, {});
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
  const double area = static_cast<double>(size) * kShare / static_cast<double>(capacity_) * (last - first);
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
        const int64_t more = blocks_[one].size - blocks_[two].size;
        if (more > 0) consider(t, blocks_[two].last, more, best);
        else consider(blocks_[one].first, t, -more, best);
      }
    for (int32_t one : born)
      for (int32_t two : born) consider(blocks_[one].last, blocks_[two].last, blocks_[one].size, best);
    for (int32_t one : dying)
      for (int32_t two : dying) consider(blocks_[two].first, blocks_[one].first, blocks_[one].size, best);
  }
  if (best.price == kNone) return false;
  add_hole(best.first, best.last, best.size);
  look_again(best.first);
  look_again(best.last);
  return true;
}

void Blocks::join() {
  for (int32_t i = 0; i < items_.n(); ++i) add(blocks_[i].first, blocks_[i].last, blocks_[i].size, Kind::kItem, {i});
  work_ += items_.n();
  if (allowed(kHoles) && rules_.hole_share > 0) fill_holes();
  for (int32_t t = 0; t < n_moments_; ++t) look_again(t);
  join_exactly();
  for (int64_t pads = 0; allowed(kPads) && n_left_ > rules_.pads_until && pads < items_.n() && work_ < rules_.most_work; ++pads) {
    if (!add_pad()) break;
    join_exactly();
  }
}

Blocks::Rest Blocks::rest() const {
  Rest rest;
  std::vector<int32_t> moments;
  for (size_t b = 0; b < blocks_.size(); ++b)
    if (alive_[b] && blocks_[b].kind != Kind::kHole) {
      rest.block.push_back(static_cast<int32_t>(b));
      moments.push_back(blocks_[b].first);
      moments.push_back(blocks_[b].last);
    }
  std::sort(moments.begin(), moments.end());
  moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
  auto place = [&](int32_t moment) {
    return static_cast<int32_t>(std::lower_bound(moments.begin(), moments.end(), moment) - moments.begin());
  };
  for (int32_t b : rest.block) {
    rest.first.push_back(place(blocks_[b].first));
    rest.last.push_back(place(blocks_[b].last));
    rest.sizes.push_back(blocks_[b].size);
    rest.steps.push_back(blocks_[b].last - blocks_[b].first);
  }
  rest.alignment.assign(rest.block.size(), 1);  // all sizes are multiples of every alignment
  rest.fixed.assign(rest.block.size(), -1);
  return rest;
}

std::vector<int64_t> Blocks::offsets(const Rest& rest, std::span<const int64_t> of_rest) const {
  std::vector<int64_t> at(blocks_.size(), 0);
  for (size_t k = 0; k < rest.block.size(); ++k) at[rest.block[k]] = of_rest[k];
  for (size_t b = blocks_.size(); b-- > static_cast<size_t>(items_.n());) {  // parts come before what they are joined to
    const Block& block = blocks_[b];
    const auto& parts = block.parts;
    if (block.kind == Kind::kParallel) {
      at[parts[0]] = at[b];
      at[parts[1]] = at[b] + blocks_[parts[0]].size;
    } else if (block.kind == Kind::kSeries) {
      at[parts[0]] = at[parts[1]] = at[b];
    } else if (block.kind == Kind::kWheel) {
      const int64_t above = at[b] + blocks_[parts[0]].size;
      at[parts[0]] = at[parts[4]] = at[b];
      at[parts[1]] = at[parts[2]] = above;
      at[parts[3]] = above + blocks_[parts[2]].size;
    }
  }
  at.resize(items_.n());
  return at;
}

}  // namespace lowtide
