// What an exact search knows of a packing in the making: what is placed, and how low everything else can still be.
#pragma once
#include "kernels/packing/cliques.hpp"
#include "kernels/packing/conflicts.hpp"
#include "kernels/packing/fixed.hpp"

namespace lowtide {

constexpr int64_t kFar = INT64_MAX / 4;

// Items are placed at their least offsets, from the bottom up, and taken back in reverse. Every placement raises the least
// offsets of what it is below; in every section the least of them is the floor, and what is unplaced there must fit above it.
class PackState {
 public:
  // `floors`: find them at all; `lowest_only`: where only one item can be the lowest of a section, as any other would waste
  // more than the section can spare, the others go above it.
  PackState(const PackItems& items, int64_t capacity, bool floors = true, bool lowest_only = true);

  const PackItems& items() const { return items_; }
  const PackConflicts& conflicts() const { return conflicts_; }
  const Cliques& cliques() const { return cliques_; }
  int64_t capacity() const { return capacity_; }
  const std::vector<int64_t>& offsets() const { return offset_; }
  bool placed(int32_t item) const { return offset_[item] >= 0; }
  int64_t least(int32_t item) const { return least_[item]; }
  size_t n_placed() const { return placed_.size(); }
  // Dead ends that floors have shown since the beginning, over all starts.
  int64_t failures() const { return failures_; }
  int64_t work() const { return work_; }
  void add_work(int64_t items) { work_ += items; }

  // Begins anew, with what is fixed in its place; false when the rest cannot fit.
  bool start();
  // Places an item at its least offset; false when that leaves no room for others. To be taken back in either case.
  bool place(int32_t item);
  // Whether the last placement raised any other item.
  bool raised_any() const { return raised_any_; }
  // Takes back all but the first `count` placements, and what followed from them.
  void take_back_to(size_t count);

  // An item of a part whose turn is over, since the next placement is not before (level, last_rank), must be pushed up by
  // something unplaced; false when nothing can.
  bool push_up_passed(const std::vector<int32_t>& part, int64_t level, int32_t last_rank, const std::vector<int32_t>& rank);

  // Those of a part that are not placed.
  std::vector<int32_t> unplaced_of(const std::vector<int32_t>& part) const;
  // Splits unplaced items where nothing crosses from one section to the next, into parts from small to large.
  std::vector<std::vector<int32_t>> parts_of(std::vector<int32_t> unplaced) const;
  // Whether an item just placed was the last to cross some place that has unplaced items of the part on both sides.
  bool comes_apart(const std::vector<int32_t>& part, int32_t item) const;

 private:
  struct FloorBefore {
    int32_t clique;
    int64_t floor;
    int32_t witness;
  };
  struct Placed {
    int32_t item;
    size_t raises, floors;
  };

  bool raise(int32_t item, int64_t offset) {
    if (offset <= least_[item]) return true;
    raises_.push_back({item, least_[item]});
    raised_.push_back(item);
    least_[item] = fixed_.lowest_legal(item, offset);
    return least_[item] + items_.sizes[item] <= capacity_;
  }
  bool find_floor(int32_t clique);
  bool settle();
  int64_t least_rise(int32_t item, int64_t level);

  const PackItems& items_;
  const PackConflicts conflicts_;
  const FixedItems fixed_;
  Cliques cliques_;
  const int64_t capacity_;
  const bool floors_wanted_, lowest_only_;
  std::vector<int64_t> offset_, least_;
  std::vector<int32_t> raised_;                      // by the step just taken, which floors may stand on
  std::vector<std::pair<int32_t, int64_t>> raises_;  // least offsets before, to be restored
  std::vector<FloorBefore> floors_;
  std::vector<Placed> placed_;
  bool raised_any_ = false;
  int64_t failures_ = 0, work_ = 0;
};

}  // namespace lowtide
