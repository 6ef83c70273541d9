#include "kernels/play_plan.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace lowtide {
namespace {

enum StepKind : uint8_t { kRun = 0, kFree = 1, kCopyOut = 2, kCopyIn = 3 };
constexpr int16_t kHome = -1;
constexpr int64_t kNoRow = -1;
constexpr int64_t kColumns = 5;
constexpr int64_t kBeforeTheFirstStep = -1;

class Player {
 public:
  Player(const PlayedProgram& program, const PlayedPlan& plan)
      : program_(program),
        plan_(plan),
        has_run_(program.may_run_twice.size(), 0),
        at_home_(program.lifetimes.size(), kAbsent),
        row_at_home_(program.lifetimes.size(), kNoRow),
        live_(program.n_spaces, 0) {
    played_.residencies.reserve(kColumns * program.lifetimes.size());
    for (int32_t b = 0; b < n_buffers(); ++b) {
      if (program.lifetimes[b] > kDonated) continue;
      at_home_[b] = 0;
      if (program.lifetimes[b] == kPersistent) continue;
      live_[home(b)] += program.sizes[b];
      row_at_home_[b] = start(b, home(b), 0);
    }
    played_.peaks = live_;
    played_.peak_steps.assign(program.n_spaces, -1);
  }

  Played play() {
    const auto n_steps = static_cast<int64_t>(plan_.kinds.size());
    for (step_ = 0; step_ < n_steps; ++step_) {
      const int32_t target = plan_.targets[step_];
      const int16_t space = plan_.spaces[step_];
      bool fine = false;
      switch (plan_.kinds[step_]) {
        case kRun: fine = run(target, plan_.pairs[step_]); break;
        case kFree: fine = free(target, space); break;
        case kCopyOut: fine = copy_out(target, space); break;
        case kCopyIn: fine = copy_in(target, space); break;
      }
      if (!fine) return std::move(played_);
    }
    finish(n_steps);
    return std::move(played_);
  }

 private:
  struct Copy {
    int32_t version;
    int64_t row;
  };

  bool run(int32_t op, std::span<const int32_t> pairs) {
    played_.op = op;
    if (has_run_[op] && !program_.may_run_twice[op]) return broken(kMayNotRunTwice);
    if (!has_run_[op] && !first_run(op)) return false;
    has_run_[op] = 1;
    const Versions& versions = program_.versions;
    const int64_t writes_from = versions.writes_from[op], end = versions.first[op + 1];
    for (int64_t i = versions.first[op]; i < end; ++i) {
      const int32_t buffer = versions.buffers[i], seen = versions.seen[i];
      if (seen != kAbsent && at_home_[buffer] != seen) return broken_contents(kContents, buffer, seen);
    }
    if (!pairs.empty() && !check_pairs(op, pairs)) return false;
    handed_.clear();
    for (size_t i = 0; i < pairs.size(); i += 2) {
      const int32_t read = pairs[i];
      live_[home(read)] -= program_.sizes[read];
      handed_.push_back(end_row(row_at_home_[read], step_));
    }
    replaced_.clear();
    for (int64_t i = writes_from; i < end; ++i) {
      const int32_t buffer = versions.buffers[i];
      if (versions.seen[i] == kAbsent) {
        live_[home(buffer)] += program_.sizes[buffer];
        if (at_home_[buffer] != kAbsent) replaced_.push_back(buffer);  // a rerun writes beside what is still there
        end_row(row_at_home_[buffer], step_ + 1);
        row_at_home_[buffer] = start(buffer, home(buffer), step_, taken_over(buffer, pairs));
      }
      at_home_[buffer] = versions.seen[i] + 1;
    }
    for (int32_t space = 0; space < program_.n_spaces; ++space) {
      reach(space, live_[space] + program_.transient[int64_t{op} * program_.n_spaces + space]);
    }
    for (int32_t buffer : replaced_) live_[home(buffer)] -= program_.sizes[buffer];
    for (size_t i = 0; i < pairs.size(); i += 2) at_home_[pairs[i]] = kAbsent;
    return true;
  }

  bool first_run(int32_t op) {
    for (int32_t earlier : program_.after[op]) {
      if (has_run_[earlier]) continue;
      played_.other = earlier;
      return broken(kControlPredecessor);
    }
    if (!program_.ordered[op]) return true;
    if (op < last_ordered_) {
      played_.other = last_ordered_;
      return broken(kProgramOrder);
    }
    last_ordered_ = op;
    return true;
  }

  bool check_pairs(int32_t op, std::span<const int32_t> pairs) {
    std::vector<int32_t> once(pairs.begin(), pairs.end());
    std::sort(once.begin(), once.end());
    if (std::adjacent_find(once.begin(), once.end()) != once.end()) return broken(kPairsShare);
    for (size_t i = 0; i < pairs.size(); i += 2) {
      const int32_t read = pairs[i], written = pairs[i + 1];
      played_.buffer = read;
      played_.other = written;
      if (!offered(op, read, written)) return broken(kPairNotOffered);
      const uint8_t lifetime = program_.lifetimes[read];
      if (lifetime != kDonated && lifetime != kIntermediate) return broken(kPairMustStay);
      if (program_.sizes[read] != program_.sizes[written] || home(read) != home(written)) return broken(kPairDiffers);
      if (!allocates(op, written) || at_home_[written] != kAbsent) return broken(kPairHasStorage);
    }
    return true;
  }

  bool offered(int32_t op, int32_t read, int32_t written) const {
    const auto flat = program_.in_place[op];
    for (size_t i = 0; i + 1 < flat.size(); i += 2) {
      if (flat[i] == read && flat[i + 1] == written) return true;
    }
    return false;
  }

  bool allocates(int32_t op, int32_t buffer) const {
    const Versions& versions = program_.versions;
    for (int64_t i = versions.writes_from[op]; i < versions.first[op + 1]; ++i) {
      if (versions.buffers[i] == buffer) return versions.seen[i] == kAbsent;
    }
    return false;
  }

  bool free(int32_t buffer, int16_t space) {
    played_.buffer = buffer;
    if (space == kHome || space == home(buffer)) {
      if (at_home_[buffer] == kAbsent) return broken_at(kFreeNotThere, home(buffer));
      at_home_[buffer] = kAbsent;
      end_row(row_at_home_[buffer], step_);
      grow(buffer, home(buffer), -program_.sizes[buffer]);
      return true;
    }
    const auto copy = copies_.find(key(buffer, space));
    if (copy == copies_.end()) return broken_at(kFreeNoCopy, space);
    end_row(copy->second.row, step_);
    copies_.erase(copy);
    grow(buffer, space, -program_.sizes[buffer]);
    return true;
  }

  bool copy_out(int32_t buffer, int16_t space) {
    played_.buffer = buffer;
    if (space == home(buffer)) return broken_at(kOutToHome, space);
    if (at_home_[buffer] == kAbsent) return broken_at(kOutNotThere, space);
    if (copies_.contains(key(buffer, space))) return broken_at(kOutTwice, space);
    copies_[key(buffer, space)] = {at_home_[buffer], start(buffer, space, step_)};
    grow(buffer, space, program_.sizes[buffer]);
    return true;
  }

  bool copy_in(int32_t buffer, int16_t space) {
    played_.buffer = buffer;
    const auto copy = copies_.find(key(buffer, space));
    if (copy == copies_.end()) return broken_at(kInNoCopy, space);
    if (at_home_[buffer] != kAbsent) return broken_at(kInStillThere, space);
    at_home_[buffer] = copy->second.version;
    row_at_home_[buffer] = start(buffer, home(buffer), step_);
    grow(buffer, home(buffer), program_.sizes[buffer]);
    return true;
  }

  void finish(int64_t n_steps) {
    const auto missing = std::find(has_run_.begin(), has_run_.end(), 0);
    if (missing != has_run_.end()) {
      played_.op = static_cast<int32_t>(missing - has_run_.begin());
      broken(kNeverRan);
      return;
    }
    for (int32_t b = 0; b < n_buffers(); ++b) {
      const uint8_t lifetime = program_.lifetimes[b];
      if (lifetime == kDonated || lifetime == kIntermediate) continue;
      if (at_home_[b] != program_.versions.at_end[b]) {
        broken_contents(kLeftBehind, b, program_.versions.at_end[b]);
        return;
      }
    }
    auto& rows = played_.residencies;
    for (size_t row = 0; row < rows.size(); row += kColumns) {
      if (rows[row + 2] < 0) rows[row + 2] = n_steps;
      if (rows[row + 1] == rows[row + 2]) rows[row + 1] = kBeforeTheFirstStep;
    }
  }

  // Begin a residency; kNoRow where it has no bytes, or none that the peak counts.
  int64_t start(int32_t buffer, int32_t space, int64_t step, int64_t continues = kNoRow) {
    if (!program_.sizes[buffer] || uncounted(buffer, space)) return kNoRow;
    auto& rows = played_.residencies;
    rows.insert(rows.end(), {buffer, step, -1, space, continues});
    return static_cast<int64_t>(rows.size()) / kColumns - 1;
  }

  // End the residency of a row; returns the row, which is none from now on.
  int64_t end_row(int64_t& row, int64_t step) {
    if (row != kNoRow) played_.residencies[row * kColumns + 2] = step;
    return std::exchange(row, kNoRow);
  }

  int64_t taken_over(int32_t buffer, std::span<const int32_t> pairs) const {
    for (size_t i = 0; i < pairs.size(); i += 2) {
      if (pairs[i + 1] == buffer) return handed_[i / 2];
    }
    return kNoRow;
  }

  void grow(int32_t buffer, int32_t space, int64_t size) {
    if (uncounted(buffer, space)) return;
    live_[space] += size;
    reach(space, live_[space]);
  }

  void reach(int32_t space, int64_t bytes) {
    if (bytes <= played_.peaks[space]) return;
    played_.peaks[space] = bytes;
    played_.peak_steps[space] = step_;
  }

  // Persistent buffers are counted apart, whether they are at home or not.
  bool uncounted(int32_t buffer, int32_t space) const {
    return program_.lifetimes[buffer] == kPersistent && space == home(buffer);
  }

  bool broken(Rule rule) {
    played_.broken = rule;
    played_.step = step_;
    return false;
  }
  bool broken_at(Rule rule, int32_t space) {
    played_.space = space;
    return broken(rule);
  }
  bool broken_contents(Rule rule, int32_t buffer, int32_t wanted) {
    played_.buffer = buffer;
    played_.wanted = wanted;
    played_.found = at_home_[buffer];
    return broken(rule);
  }

  int32_t home(int32_t buffer) const { return program_.homes[buffer]; }
  int32_t n_buffers() const { return static_cast<int32_t>(program_.lifetimes.size()); }
  static uint64_t key(int32_t buffer, int16_t space) {
    return static_cast<uint64_t>(buffer) << 16 | static_cast<uint16_t>(space);
  }

  const PlayedProgram& program_;
  const PlayedPlan& plan_;
  int64_t step_ = -1;
  std::vector<uint8_t> has_run_;
  int32_t last_ordered_ = -1;
  std::vector<int32_t> at_home_;  // the version of every buffer in its home space
  std::vector<int64_t> row_at_home_;
  std::unordered_map<uint64_t, Copy> copies_;
  std::vector<int64_t> live_;
  std::vector<int32_t> replaced_;
  std::vector<int64_t> handed_;  // rows of the read buffers of the pairs taken
  Played played_;
};

}  // namespace

Played play_plan(const PlayedProgram& program, const PlayedPlan& plan) { return Player(program, plan).play(); }

}  // namespace lowtide
