#include "kernels/packing/state.hpp"

namespace lowtide {
namespace {

// The least offset any unplaced item of a clique can have, the first item that has it (-1: all are placed), and the least
// offset of the others.
struct Lowest {
  int64_t floor = kFar, second = kFar;
  int32_t witness = -1;
};

Lowest lowest_unplaced(const Clique& clique, const std::vector<int64_t>& offset, const std::vector<int64_t>& least) {
  Lowest lowest;
  for (int32_t i : clique.items) {
    if (offset[i] >= 0) continue;
    if (least[i] < lowest.floor) {
      lowest.second = lowest.floor;
      lowest.floor = least[i];
      lowest.witness = i;
    } else {
      lowest.second = std::min(lowest.second, least[i]);
    }
  }
  return lowest;
}

}  // namespace

PackState::PackState(const PackItems& items, int64_t capacity, bool floors, bool lowest_only)
    : items_(items), conflicts_(pack_conflicts(items)), fixed_(items, conflicts_), cliques_(items), capacity_(capacity),
      floors_wanted_(floors), lowest_only_(lowest_only) {}

bool PackState::start() {
  offset_.assign(items_.n(), -1);
  least_.assign(items_.n(), 0);
  raises_.clear();
  floors_.clear();
  placed_.clear();
  raised_.clear();
  cliques_.reset();
  for (int32_t i = 0; i < items_.n(); ++i) {
    if (items_.fixed[i] >= 0) {
      offset_[i] = items_.fixed[i];
      cliques_.count(i, -1);
    } else {
      least_[i] = fixed_.lowest_legal(i, 0);
    }
    if (std::max(offset_[i], least_[i]) + items_.sizes[i] > capacity_) return false;
  }
  for (int32_t c = 0; c < cliques_.n(); ++c) {
    if (cliques_[c].unplaced_bytes > capacity_) return false;
    if (floors_wanted_ && !find_floor(c)) return false;
  }
  return settle();
}

bool PackState::find_floor(int32_t c) {
  Clique& clique = cliques_[c];
  const auto [floor, second, witness] = lowest_unplaced(clique, offset_, least_);
  work_ += static_cast<int64_t>(clique.items.size());
  floors_.push_back({c, clique.floor, clique.witness});
  clique.floor = floor;
  clique.witness = witness;
  if (witness < 0) return true;
  const int64_t spare = capacity_ - floor - clique.unplaced_bytes;
  if (spare < 0) {
    ++clique.failures;
    ++failures_;
    return false;
  }
  if (!lowest_only_ || second == kFar || second - floor <= spare) return true;
  for (int32_t other : clique.items)
    if (offset_[other] < 0 && other != witness)
      if (const int64_t over = clearance(items_, other, witness); over != kNoConflict && !raise(other, floor + over))
        return false;
  return true;
}

// Finds the floors anew that stood on items just raised or placed, and follows what that raises.
bool PackState::settle() {
  for (size_t k = 0; floors_wanted_ && k < raised_.size(); ++k)
    for (int32_t c = cliques_.first(raised_[k]); c < cliques_.last(raised_[k]); ++c)
      if (cliques_[c].witness == raised_[k] && !find_floor(c)) return false;
  return true;
}

bool PackState::place(int32_t item) {
  placed_.push_back({item, raises_.size(), floors_.size()});
  offset_[item] = least_[item];
  cliques_.count(item, -1);
  raised_.assign(1, item);
  work_ += static_cast<int64_t>(conflicts_[item].size());
  raised_any_ = true;
  for (const Conflict& conflict : conflicts_[item])
    if (offset_[conflict.other] < 0 && !raise(conflict.other, offset_[item] + conflict.under)) return false;
  raised_any_ = raised_.size() > 1;
  return settle();
}

void PackState::take_back_to(size_t count) {
  for (; placed_.size() > count; placed_.pop_back()) {
    const Placed& last = placed_.back();
    for (; floors_.size() > last.floors; floors_.pop_back()) {
      cliques_[floors_.back().clique].floor = floors_.back().floor;
      cliques_[floors_.back().clique].witness = floors_.back().witness;
    }
    for (; raises_.size() > last.raises; raises_.pop_back()) least_[raises_.back().first] = raises_.back().second;
    cliques_.count(last.item, 1);
    offset_[last.item] = -1;
  }
}

bool PackState::push_up_passed(const std::vector<int32_t>& part, int64_t level, int32_t last_rank,
                               const std::vector<int32_t>& rank) {
  raised_.clear();
  for (int32_t i : part)
    if (offset_[i] < 0 && (least_[i] < level || (least_[i] == level && rank[i] <= last_rank)))
      if (const int64_t least = least_rise(i, level); least == kFar || !raise(i, least)) return false;
  return settle();
}

// The least offset that something unplaced can push the item up to, when nothing goes below `level` any more.
int64_t PackState::least_rise(int32_t item, int64_t level) {
  work_ += static_cast<int64_t>(conflicts_[item].size());
  const int64_t top = least_[item] + items_.sizes[item];
  int64_t least = kFar;
  for (const Conflict& conflict : conflicts_[item])
    if (offset_[conflict.other] < 0)
      if (const int64_t at = std::max(least_[conflict.other], level); at < top) least = std::min(least, at + conflict.over);
  return least;
}

std::vector<int32_t> PackState::unplaced_of(const std::vector<int32_t>& part) const {
  std::vector<int32_t> rest;
  for (int32_t i : part)
    if (offset_[i] < 0) rest.push_back(i);
  return rest;
}

std::vector<std::vector<int32_t>> PackState::parts_of(std::vector<int32_t> unplaced) const {
  std::sort(unplaced.begin(), unplaced.end(), [&](int32_t a, int32_t b) {
    return items_.first[a] != items_.first[b] ? items_.first[a] < items_.first[b] : a < b;
  });
  std::vector<std::vector<int32_t>> parts;
  int32_t end = -1;
  for (int32_t i : unplaced) {
    if (parts.empty() || items_.first[i] >= end) parts.emplace_back();
    parts.back().push_back(i);
    end = std::max(end, items_.last[i]);
  }
  std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.size() < b.size(); });
  return parts;
}

bool PackState::comes_apart(const std::vector<int32_t>& part, int32_t item) const {
  int32_t first = INT32_MAX, last = -1;
  for (int32_t c = cliques_.first(item) + 1; c < cliques_.last(item); ++c)
    if (cliques_.crossing(c) == 0) {
      first = std::min(first, c);
      last = c;
    }
  if (last < 0) return false;
  int32_t earliest_end = INT32_MAX, latest_start = -1;
  for (int32_t i : part)
    if (offset_[i] < 0) {
      earliest_end = std::min(earliest_end, cliques_.last(i));
      latest_start = std::max(latest_start, cliques_.first(i));
    }
  return earliest_end <= last && latest_start >= first;
}

}  // namespace lowtide
