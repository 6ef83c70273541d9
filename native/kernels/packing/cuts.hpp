// Items joined into larger rectangles along the cuts between them, which moments hide.
#pragma once
#include <set>
#include <unordered_map>

#include "kernels/packing/block_tree.hpp"

namespace lowtide {

// How boldly one attempt joins; `seed` varies what is left to chance.
struct CutRules {
  double most_doubt = 1e9;     // of any step
  double variation = 0;        // of doubts, in doublings up or down
  double parallel_doubt = 1;   // what doubts of parallel joins count
  bool both_ends = false;      // a parallel join is doubtful only as far as both of its ends are, else as far as any is
  double half_doubt = 0.3;     // what doubts of holes count of which one end is given away
  bool holes = true;
  int32_t holes_until = 1;     // holes end at so many blocks
  uint64_t seed = 0;
  int64_t most_work = INT64_MAX;
};

// A dissected rectangle is a planar graph: its nodes are cuts in time, its edges blocks, from the cut where they are born to the
// one where they die, and at a cut as many bytes are born as die. Only moments are known, and several cuts may be made in one.
// So every moment begins as one cut, and is split where some that die there are as large as some that are born. Cuts with one
// block on either side vanish (a series join), blocks between the same two cuts become one (a parallel join), and so do five
// that turn around a middle one. Where bytes do not balance there are holes: what makes two blocks fit, is the fifth block of
// a wheel, or balances both ends or one. The least doubtful step goes first; its doubt is about how many such steps chance
// alone would offer, so that large sizes that agree are believed and small ones are not. Steps lose packings, as in `Blocks`.
// For rectangles only, none of them fixed.
class Cuts {
 public:
  Cuts(const PackItems& items, int64_t capacity, const CutRules& rules);

  // Joins as far as the rules allow; every step looks again at the cuts near it.
  void join();

  int64_t work() const { return work_; }
  const BlockTree& tree() const { return tree_; }

 private:
  using Kind = BlockTree::Kind;
  enum class Step : int8_t { kNone, kSeries, kParallel, kSplit, kWheel, kHole };
  // A cut: what dies and what is born there, and by how many bytes more is born.
  struct Cut {
    int32_t moment;
    int64_t gain;
    std::vector<int32_t> dying, born;
  };
  struct Ends {
    int32_t born, dying;  // cuts
  };
  struct Choice {
    double doubt = kNever;
    Step step = Step::kNone;
    std::array<int32_t, 5> blocks{-1, -1, -1, -1, -1};  // to be joined; splits: two that die and two that are born
    int32_t first = -1, last = -1;                      // a hole's cuts
    int64_t size = 0;
  };
  static constexpr double kNever = 1e300;

  // What is known of chance (cut_doubts.cpp).
  double coincidence(int64_t size);
  double end_doubt(int32_t cut, int64_t change, int64_t size);
  double hidden_split(int32_t cut) const;
  double follow_up(int32_t first, int32_t last, int64_t size, int32_t one, int32_t other);
  double varied(uint64_t one, uint64_t two) const;

  // The least doubtful step at a cut.
  Choice best_split(int32_t cut);
  void offer_parallel(int32_t cut, Choice& best);
  void offer_wheels(int32_t cut, Choice& best);
  void offer_pads(int32_t cut, Choice& best);
  void offer_whole_hole(int32_t cut, Choice& best);
  void offer_half_hole(int32_t cut, int32_t direction, Choice& best);
  void offer(const Choice& choice, Choice& best);
  void offer_hole(double doubt, int32_t first, int32_t last, int64_t size, Choice& best);

  void look_again();
  void choose(int32_t cut);
  void set_choice(int32_t cut, const Choice& choice);
  void take(int32_t cut, const Choice& choice);
  void add(int32_t block, int32_t born, int32_t dying);
  void join_blocks(int32_t born, int32_t dying, int64_t size, Kind kind, std::array<int32_t, 5> parts);
  void remove(int32_t block);
  void split(int32_t cut, const std::array<int32_t, 5>& blocks);
  void add_hole(int32_t first, int32_t last, int64_t size);
  void change_gain(int32_t cut, int64_t bytes);
  void mark(int32_t cut);
  void touch(int32_t cut);
  bool room(int32_t first, int32_t last, int64_t size);
  bool at_edge(int32_t cut) const { return cuts_[cut].moment == 0 || cuts_[cut].moment == tree_.n_moments() - 1; }
  int32_t moment(int32_t cut) const { return cuts_[cut].moment; }
  int64_t size(int32_t block) const { return tree_[block].size; }

  BlockTree tree_;
  const CutRules rules_;
  int64_t unit_;                                 // divides all sizes
  std::vector<int64_t> sizes_;                   // of items, ascending
  std::vector<int64_t> spare_;                   // as the tree's, with holes
  std::vector<Cut> cuts_;
  std::vector<std::vector<int32_t>> at_moment_;  // cuts
  std::vector<Ends> ends_;                       // per block
  std::vector<Choice> choices_, splits_;         // per cut
  std::set<std::pair<double, int32_t>> doubts_;  // of cuts with a choice
  std::vector<char> marked_;
  std::vector<int32_t> to_see_;                  // marked cuts
  std::unordered_map<int64_t, std::set<int32_t>> of_gain_;  // cuts that do not balance
  std::unordered_map<int64_t, double> coincidences_;
  int32_t n_gaining_ = 0;                        // cuts with more born than dying
  int64_t work_ = 0;
};

}  // namespace lowtide
