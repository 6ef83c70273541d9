// Items joined into larger rectangles, as pieces of a jigsaw are before the frame is filled.
#pragma once
#include <set>
#include <unordered_map>

#include "kernels/packing/block_tree.hpp"

namespace lowtide {

// What may be joined, one bit each.
enum Join : int32_t {
  kParallel = 1,  // two of one life: one on top of the other
  kSeries = 2,    // two of one size, of which one dies where the other is born: one address
  kWheel = 4,     // five around a middle one, of which no two can be joined
  kHoles = 8,     // empty rectangles whose two ends the bytes alive give away
  kPads = 16,     // empty rectangles that let two blocks be joined
  kCuts = 32,     // all of these once more, with the cuts told apart that one moment hides (`Cuts`)
  kAllJoins = 63
};

// How boldly one attempt joins; `seed` varies what is left to chance.
struct JoinRules {
  int32_t joins = kAllJoins;
  double most_doubt = 0;   // of a series join
  double hole_share = 0;   // of the holes given away, those that are filled
  double variation = 0;    // of doubts and prices
  int32_t least_evidence = 0;  // of a pad: how many more of its two ends balance with it
  int32_t pads_until = INT32_MAX;  // pads end at so many blocks
  uint64_t seed = 0;
  int64_t most_work = INT64_MAX;  // pads end after so much
};

// Where hardly a byte stays free, what is born at a moment takes the place of what dies there: two blocks of one size are
// then most likely one above the other in time, unless several are born and die there (the doubt). Joins lose packings, so
// that nothing follows where the blocks left cannot be packed; where they can, so can the items. For rectangles only, none
// of them fixed. Idea: series-parallel reduction; a dissected rectangle is a planar graph of its cuts in time.
class Blocks {
 public:
  Blocks(const PackItems& items, int64_t capacity, const JoinRules& rules);

  // Joins as far as the rules allow; O(log n) a join, besides what looking for wheels, holes and pads costs.
  void join();

  int64_t work() const { return work_; }
  const BlockTree& tree() const { return tree_; }

 private:
  using Kind = BlockTree::Kind;
  struct Places {
    int32_t born = 0, dying = 0;  // in the lists of its moments
  };
  struct Pad {
    double price;
    int32_t first, last;
    int64_t size;
  };

  bool allowed(Join join) const { return (rules_.joins & join) != 0; }
  double varied(uint64_t one, uint64_t two) const;
  int32_t make(int32_t first, int32_t last, int64_t size, Kind kind, std::array<int32_t, 5> parts);
  int32_t add(int32_t block);
  void remove(int32_t block);
  int32_t find_series(int32_t moment, int32_t& second, double& doubt);
  void look_again(int32_t moment);
  void join_exactly();
  bool join_series();
  bool join_wheels();
  bool join_wheel_at(int32_t early);
  void add_hole(int32_t first, int32_t last, int64_t size);
  void fill_holes();
  bool add_pad();
  void consider(int32_t first, int32_t last, int64_t size, Pad& best);
  int64_t least_spare(int32_t first, int32_t last);

  BlockTree tree_;
  const JoinRules rules_;
  int32_t n_moments_;
  std::vector<Places> places_;
  std::vector<std::vector<int32_t>> born_, dying_;  // per moment
  std::vector<int64_t> gain_, spare_;               // as the tree's, with holes
  std::unordered_map<int64_t, int32_t> of_life_;
  std::set<std::pair<double, int32_t>> doubts_;     // moments with a series join
  std::vector<double> doubt_at_;
  int64_t work_ = 0;
};

}  // namespace lowtide
