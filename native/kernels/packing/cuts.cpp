#include "kernels/packing/cuts.hpp"

#include <numeric>

namespace lowtide {
namespace {

constexpr int kStepsPerItem = 12;

void drop(std::vector<int32_t>& blocks, int32_t block) { blocks.erase(std::find(blocks.begin(), blocks.end(), block)); }

}  // namespace

Cuts::Cuts(const PackItems& items, int64_t capacity, const CutRules& rules)
    : tree_(items, capacity), rules_(rules), unit_(tree_.capacity()), spare_(tree_.spare()), at_moment_(tree_.n_moments()),
      ends_(items.n()), choices_(tree_.n_moments()), splits_(tree_.n_moments()), marked_(tree_.n_moments(), 0) {
  for (int32_t i = 0; i < items.n(); ++i) {
    unit_ = std::gcd(unit_, size(i));
    sizes_.push_back(size(i));
  }
  std::sort(sizes_.begin(), sizes_.end());
  const std::vector<int64_t> gains = tree_.gains();
  for (int32_t t = 0; t < tree_.n_moments(); ++t) {
    cuts_.push_back({t, 0, {}, {}});
    at_moment_[t] = {t};
    change_gain(t, gains[t]);
  }
}

void Cuts::mark(int32_t cut) {
  if (marked_[cut]) return;
  marked_[cut] = 1;
  to_see_.push_back(cut);
}

// A cut has changed: it and those at the other ends of its blocks are looked at again.
void Cuts::touch(int32_t cut) {
  mark(cut);
  for (int32_t block : cuts_[cut].born) mark(ends_[block].dying);
  for (int32_t block : cuts_[cut].dying) mark(ends_[block].born);
}

void Cuts::change_gain(int32_t cut, int64_t bytes) {
  int64_t& gain = cuts_[cut].gain;
  if (gain != 0) of_gain_[gain].erase(cut);
  n_gaining_ -= gain > 0;
  gain += bytes;
  n_gaining_ += gain > 0;
  if (gain != 0) of_gain_[gain].insert(cut);
  if (const auto matching = of_gain_.find(-gain); gain != 0 && matching != of_gain_.end())
    for (int32_t other : matching->second) mark(other);
  touch(cut);
}

void Cuts::add(int32_t block, int32_t born, int32_t dying) {
  ends_[block] = {born, dying};
  tree_.set_alive(block, true);
  cuts_[born].born.push_back(block);
  cuts_[dying].dying.push_back(block);
  touch(born);
  touch(dying);
}

void Cuts::remove(int32_t block) {
  const auto [born, dying] = ends_[block];
  touch(born);
  touch(dying);
  drop(cuts_[born].born, block);
  drop(cuts_[dying].dying, block);
  tree_.set_alive(block, false);
}

void Cuts::join_blocks(int32_t born, int32_t dying, int64_t size, Kind kind, std::array<int32_t, 5> parts) {
  ends_.push_back({});
  add(tree_.make(moment(born), moment(dying), size, kind, parts), born, dying);
}

bool Cuts::room(int32_t first, int32_t last, int64_t size) {
  work_ += moment(last) - moment(first);
  return std::all_of(spare_.begin() + moment(first), spare_.begin() + moment(last), [&](int64_t s) { return s >= size; });
}

void Cuts::add_hole(int32_t first, int32_t last, int64_t size) {
  for (int32_t s = moment(first); s < moment(last); ++s) spare_[s] -= size;
  change_gain(first, size);
  change_gain(last, -size);
  join_blocks(first, last, size, Kind::kHole, {});
}

// Moves blocks that balance to a cut of their own.
void Cuts::split(int32_t cut, const std::array<int32_t, 5>& blocks) {
  const auto other = static_cast<int32_t>(cuts_.size());
  touch(cut);
  cuts_.push_back({moment(cut), 0, {}, {}});
  at_moment_[moment(cut)].push_back(other);
  choices_.emplace_back();
  splits_.emplace_back();
  marked_.push_back(0);
  for (int k = 0; k < 4; ++k)
    if (const int32_t block = blocks[k]; block >= 0) {
      drop(k < 2 ? cuts_[cut].dying : cuts_[cut].born, block);
      (k < 2 ? cuts_[other].dying : cuts_[other].born).push_back(block);
      (k < 2 ? ends_[block].dying : ends_[block].born) = other;
    }
  touch(other);
}

void Cuts::take(int32_t cut, const Choice& choice) {
  const std::array<int32_t, 5>& parts = choice.blocks;
  const auto ends = [&](int32_t first, int32_t last) { return Ends{ends_[parts[first]].born, ends_[parts[last]].dying}; };
  if (choice.step == Step::kSplit) return split(cut, parts);
  if (choice.step == Step::kHole) return add_hole(choice.first, choice.last, choice.size);
  const bool series = choice.step == Step::kSeries, wheel = choice.step == Step::kWheel;
  const auto [born, dying] = wheel ? ends(1, 4) : ends(0, 1);
  const int64_t total = size(parts[0]) + (series ? 0 : size(parts[1]));
  const Kind kind = series                                             ? Kind::kSeries
                    : wheel                                            ? Kind::kWheel
                    : tree_.is_hole(parts[0]) && tree_.is_hole(parts[1]) ? Kind::kHole
                                                                       : Kind::kParallel;
  for (int32_t part : parts)
    if (part >= 0) remove(part);
  join_blocks(born, dying, total, kind, parts);
}

void Cuts::offer(const Choice& choice, Choice& best) {
  if (choice.doubt < best.doubt) best = choice;
}

void Cuts::offer_hole(double doubt, int32_t first, int32_t last, int64_t size, Choice& best) {
  if (doubt < best.doubt && room(first, last, size)) best = {doubt, Step::kHole, {-1, -1, -1, -1, -1}, first, last, size};
}

void Cuts::set_choice(int32_t cut, const Choice& choice) {
  if (choices_[cut].doubt < kNever) doubts_.erase({choices_[cut].doubt, cut});
  choices_[cut] = choice;
  if (choice.doubt < kNever) doubts_.insert({choice.doubt, cut});
}

void Cuts::choose(int32_t cut) {
  Choice best = splits_[cut];
  const auto& [moment, gain, dying, born] = cuts_[cut];
  work_ += static_cast<int64_t>(dying.size() + born.size());
  if (dying.size() == 1 && born.size() == 1 && gain == 0 && !(tree_.is_hole(dying[0]) && tree_.is_hole(born[0])))
    best = {0, Step::kSeries, {dying[0], born[0], -1, -1, -1}};
  offer_parallel(cut, best);
  if (!at_edge(cut)) offer_wheels(cut, best);
  if (rules_.holes) {
    offer_pads(cut, best);
    if (gain < 0) offer_whole_hole(cut, best);
    if (gain != 0) offer_half_hole(cut, gain < 0 ? 1 : -1, best);
  }
  set_choice(cut, best);
}

void Cuts::look_again() {
  const std::vector<int32_t> cuts = std::move(to_see_);
  to_see_.clear();
  for (int32_t cut : cuts) {
    marked_[cut] = 0;
    splits_[cut] = best_split(cut);
  }
  for (int32_t cut : cuts) choose(cut);
}

void Cuts::join() {
  for (int32_t i = 0; i < tree_.n_items(); ++i) add(i, tree_[i].first, tree_[i].last);
  work_ += tree_.n_items();
  for (int64_t steps = kStepsPerItem * int64_t{tree_.n_items()}; steps > 0 && work_ < rules_.most_work; --steps) {
    look_again();
    if (doubts_.empty() || doubts_.begin()->first > rules_.most_doubt || tree_.n_left() <= 1) break;
    const int32_t cut = doubts_.begin()->second;
    const Choice choice = choices_[cut];
    if (choice.step == Step::kHole && tree_.n_left() <= rules_.holes_until) break;
    if (choice.step == Step::kHole && !room(choice.first, choice.last, choice.size)) choose(cut);  // another hole took it
    else take(cut, choice);
  }
}

}  // namespace lowtide
