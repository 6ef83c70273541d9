// Play a plan step by step and hold every step to the rules of execution; knows nothing of what makes plans.
#pragma once
#include "kernels/versions.hpp"

namespace lowtide {

// Shared with Python's `Rule`.
enum Rule : int32_t {
  kNoneBroken = 0,
  kMayNotRunTwice,
  kControlPredecessor,  // `other` is the op that must run before
  kProgramOrder,        // `other` is the ordered op that ran before
  kContents,            // `buffer` is needed as `wanted` and is there as `found`
  kPairsShare,
  kPairNotOffered,  // pairs: `buffer` is read, `other` is written
  kPairMustStay,
  kPairDiffers,
  kPairHasStorage,
  kFreeNotThere,
  kFreeNoCopy,
  kOutToHome,
  kOutNotThere,
  kOutTwice,
  kInNoCopy,
  kInStillThere,
  kNeverRan,
  kLeftBehind,  // after the last step, `buffer` must be there as `wanted` and is there as `found`
};

struct PlayedProgram {
  Versions versions;
  Rows after, in_place;  // pairs flat: read, written, ...
  std::span<const uint8_t> may_run_twice, ordered, lifetimes;
  std::span<const int64_t> sizes;
  std::span<const int16_t> homes;
  std::span<const int64_t> transient;  // bytes that every op needs while it runs, by op and space
  int32_t n_spaces;
};

// Every id must be in range, and pairs must be pairs.
struct PlayedPlan {
  std::span<const uint8_t> kinds;
  std::span<const int32_t> targets;
  std::span<const int16_t> spaces;  // kHome: the buffer's home space
  Rows pairs;
};

struct Played {
  Rule broken = kNoneBroken;  // the first rule that a step breaks; nothing after it was played
  int64_t step = -1;
  int32_t op = -1, buffer = -1, other = -1, space = -1, wanted = kAbsent, found = kAbsent;
  std::vector<int64_t> peaks, peak_steps;  // per space, persistent buffers left out; -1: before the first step
  // Every residency that has bytes and that the peak counts, in the order in which they start: buffer, first step, last
  // step, space, and the row whose storage it takes over, or -1.
  std::vector<int64_t> residencies;
};

// An op runs only while every buffer it touches is resident in its home space with exactly the version that the op saw in
// program order, and leaves the versions it left there: one rule for data, anti- and output dependences. O(steps + e).
Played play_plan(const PlayedProgram& program, const PlayedPlan& plan);

}  // namespace lowtide
