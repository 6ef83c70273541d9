#include "kernels/search/refutation_walk.hpp"

#include <algorithm>
#include <deque>

#include "kernels/search/execution_state.hpp"
#include "kernels/search/valley.hpp"

namespace lowtide {
namespace {

constexpr size_t kCriticalOps = 16;      // that are tried as the one that cannot fit any more
constexpr size_t kChoicesFollowed = 16;  // in search of a valley
constexpr int64_t kWorkPerLook = 8;      // in arcs of a flow
constexpr size_t kMostLines = 100'000;
constexpr int64_t kFirstRound = 1'000'000;  // work of the first turn of each direction
constexpr int64_t kFirstShare = 8;         // or so many parts of all work, where that is less

struct Question {
  const GraphView& graph;
  int32_t space;
  bool in_place;
  int64_t budget;
  std::span<const int32_t> worst_first;
  const std::function<bool()>& go_on;
};

enum class Outcome { kRefuted, kGivenUp, kStopped };

// Ops that every order may be made to run first and last (from the last one on), with the lines that say so in turn.
struct Settled {
  std::vector<int32_t> first, last;
  std::vector<RefutationLine> lines;
};

// One direction; going backward, "taking" an op removes it from the end, and "next" is right before what was removed.
template <class State>
class Walk {
 public:
  Walk(const Question& question, const Settled& settled)
      : asked_(question), state_(question.graph, question.in_place), valley_(question.graph), foreign_(question.graph.n_ops, 0),
        net_(question.graph.n_spaces), peak_(question.graph.n_spaces), lines_(settled.lines) {
    for (int32_t op : State::kForward ? settled.last : settled.first) foreign_[op] = 1;
    for (int32_t op : State::kForward ? settled.first : settled.last) state_.take(op);
    n_left_ = static_cast<size_t>(std::count(foreign_.begin(), foreign_.end(), 0));
    for (int32_t op : question.worst_first.first(std::min(question.worst_first.size(), kCriticalOps))) {
      cutters_.emplace_back(question.graph, question.space, question.in_place);
      cutters_.back().enter(op);
      critical_.push_back({op, &cutters_.back()});
    }
  }

  // Refuted once all cases ended; given up where an order fits or the log gets too long; else the work is used up.
  Outcome run(int64_t max_work) {
    work_left_ = max_work;
    for (bool ended = false;;) {
      if (!ended) ended = arrive();
      if (done() || lines_.size() >= kMostLines) return Outcome::kGivenUp;
      if (ended) {
        while (!frames_.empty() && frames_.back().next == frames_.back().choices.size()) frames_.pop_back();
        if (frames_.empty()) return Outcome::kRefuted;
      }
      if (!within_limits()) return Outcome::kStopped;
      Frame& frame = frames_.back();
      rewind(frame.length);
      state_.take(frame.choices[frame.next++]);
      ended = false;
    }
  }

  const std::vector<RefutationLine>& lines() const { return lines_; }
  int64_t work_left() const { return work_left_; }

  // Adds what is settled after `run` did not end.
  void settle_in(Settled& settled) const {
    const size_t n_ops = frames_.empty() ? state_.path().size() : frames_.front().length;
    const size_t n_lines = frames_.empty() ? lines_.size() : frames_.front().first_line;
    (State::kForward ? settled.first : settled.last).assign(state_.path().begin(), state_.path().begin() + static_cast<int64_t>(n_ops));
    settled.lines.assign(lines_.begin(), lines_.begin() + static_cast<int64_t>(n_lines));
  }

 private:
  struct Critical {
    int32_t op;
    ClosureCutter* cutter;
  };
  struct Frame {  // a set with several cases
    size_t length, first_line, next;
    int64_t live;
    std::vector<int32_t> choices;
  };

  static constexpr auto kSettled = State::kForward ? RefutationLine::kFirst : RefutationLine::kLast;
  static constexpr auto kCases = State::kForward ? RefutationLine::kNext : RefutationLine::kPrevious;

  int64_t live() const { return state_.live()[asked_.space]; }
  bool done() const { return state_.path().size() == n_left_; }
  bool within_limits() { return work_left_ > 0 && asked_.go_on(); }

  bool fits(int32_t op) {
    work_left_ -= kWorkPerLook;
    state_.peak(op, peak_);
    return peak_[asked_.space] <= asked_.budget;
  }

  int64_t net_of(int32_t op) {
    state_.change(op, net_);
    return net_[asked_.space];
  }

  // What may run next and fits, the ones that leave least first.
  std::vector<int32_t> by_net() {
    std::vector<std::pair<int64_t, int32_t>> ranked;
    for (int32_t op : state_.ready())
      if (!foreign_[op] && fits(op)) ranked.push_back({net_of(op), op});
    std::sort(ranked.begin(), ranked.end());
    std::vector<int32_t> ops;
    for (const auto& [net, op] : ranked) ops.push_back(op);
    return ops;
  }

  // Enters the present set: moves on to valleys, then ends its case or lists what may run next. Whether the case ended.
  bool arrive() {
    for (;;) {
      do
        drop_cases();
      while (settle() && within_limits());
      if (done() || !within_limits()) return false;
      if (doomed()) return true;
      const auto choices = by_net();
      const size_t first_line = lines_.size();
      write_all(kCases, choices);
      if (choices.empty()) return true;
      if (choices.size() > 1) {
        frames_.push_back({state_.path().size(), first_line, 0, live(), choices});
        return false;
      }
      state_.take(choices.front());  // the only case
    }
  }

  // Leaves out the cases of every set on the way here that the present one is a valley of.
  void drop_cases() {
    while (!frames_.empty() && live() <= frames_.back().live && is_valley(frames_.back().length)) {
      lines_.resize(frames_.back().first_line);
      write_all(kSettled, std::span(state_.path()).subspan(frames_.back().length));
      frames_.pop_back();
    }
  }

  void close() {
    for (size_t i = 0; i < state_.ready().size();) {
      const int32_t op = state_.ready()[i];
      work_left_ -= kWorkPerLook;
      if (!foreign_[op] && net_of(op) <= 0 && state_.never_hinders(op) && fits(op)) {
        state_.take(op);
        i = 0;
      } else {
        ++i;
      }
    }
  }

  // Moves to a set that is a valley seen from here, other than the present one; false where none is found.
  bool settle() {
    const size_t length = state_.path().size();
    close();
    if (state_.path().size() > length && keep_least(length)) return true;
    rewind(length);
    const auto choices = by_net();
    const int64_t here = live();
    for (size_t i = 0; i < choices.size() && i < kChoicesFollowed && work_left_ > 0; ++i) {
      state_.take(choices[i]);
      close();
      if (live() <= here && keep_least(length)) return true;
      rewind(length);
    }
    return false;
  }

  // Goes back to the one of the least sets between the one after `length` ops and the present one that is nearest to the
  // present one; false where that is the first of them, or where an op no longer fits without what it leaves out.
  bool keep_least(size_t length) {
    const auto taken = least_since(length);
    const std::vector<int32_t> segment(state_.path().begin() + static_cast<int64_t>(length), state_.path().end());
    rewind(length);
    for (size_t i = 0; i < segment.size(); ++i) {
      if (!taken[i]) continue;
      if (!fits(segment[i]) || !state_.never_hinders(segment[i])) return rewind(length), false;
      state_.take(segment[i]);
    }
    if (state_.path().size() == length) return false;
    write_all(kSettled, std::span(state_.path()).subspan(length));
    return true;
  }

  bool is_valley(size_t length) {
    const auto taken = least_since(length);
    const auto segment = std::span(state_.path()).subspan(length);
    return std::all_of(taken.begin(), taken.end(), [](uint8_t is) { return is; }) &&
           std::all_of(segment.begin(), segment.end(), [&](int32_t op) { return state_.never_hinders(op); });
  }

  // Per op taken after `length` others, whether it is taken in the least set.
  std::vector<uint8_t> least_since(size_t length) {
    auto in = valley_.find(
        std::span(state_.path()).subspan(length), [&](int32_t op) { return state_.taken(op) == State::kForward; },
        asked_.space, State::kForward);
    work_left_ -= valley_.work();
    for (auto& is : in) is = is == State::kForward;
    return in;
  }

  // Whether an op that is still to come cannot fit any more.
  bool doomed() {
    for (size_t i = 0; i < critical_.size() && work_left_ > 0; ++i) {
      const auto [op, cutter] = critical_[i];
      if (state_.taken(op) || foreign_[op]) continue;
      int64_t work = 0;
      const int64_t peak = cutter->least_peak(
          [&](int32_t other) {
            if (state_.taken(other)) return State::kForward ? ClosureCutter::kBefore : ClosureCutter::kAfter;
            if (foreign_[other]) return State::kForward ? ClosureCutter::kAfter : ClosureCutter::kBefore;
            return ClosureCutter::kFree;
          },
          work);
      work_left_ -= work;
      if (peak <= asked_.budget) continue;
      lines_.push_back({{RefutationLine::kOver, op, -1, -1}});
      const auto place = critical_.begin() + static_cast<int64_t>(i);  // what ends one case often ends the next one
      std::rotate(critical_.begin(), place, place + 1);
      return true;
    }
    return false;
  }

  void rewind(size_t length) {
    while (state_.path().size() > length) state_.undo();
  }

  void write_all(RefutationLine::Kind kind, std::span<const int32_t> ops) {
    lines_.push_back({{kind, static_cast<int32_t>(ops.size()), -1, -1}});
    for (int32_t op : ops) lines_.push_back({{RefutationLine::kOp, op, -1, -1}});
  }

  const Question& asked_;
  State state_;
  ValleyFinder valley_;
  std::vector<uint8_t> foreign_;  // per op: settled by the other direction
  size_t n_left_ = 0;             // that the other direction has not settled
  Bytes net_, peak_;
  int64_t work_left_ = 0;
  std::vector<RefutationLine> lines_;
  std::vector<Frame> frames_;
  std::deque<ClosureCutter> cutters_;  // one per critical op, which it has entered
  std::vector<Critical> critical_;     // what ended a case last comes first
};

// One turn of a direction, which takes its work from `work_left`; what it settles, or all lines once it is refuted, is kept.
template <class State>
Outcome take_turn(const Question& question, Settled& settled, int64_t& work_left, int64_t round) {
  Walk<State> walk(question, settled);
  const int64_t most = std::min(round, work_left);
  const Outcome outcome = walk.run(most);
  work_left -= std::max<int64_t>(1, most - walk.work_left());
  if (outcome == Outcome::kRefuted) settled.lines = walk.lines();
  else walk.settle_in(settled);
  return outcome;
}

}  // namespace

bool refute_by_walk(const GraphView& graph, int32_t space, bool in_place, int64_t budget,
                    std::span<const int32_t> worst_first, int64_t max_work, const std::function<bool()>& go_on,
                    std::vector<RefutationLine>& lines) {
  const Question question{graph, space, in_place, budget, worst_first, go_on};
  Settled settled;
  auto outcome = Outcome::kStopped;
  int64_t left = max_work;
  for (int64_t round = std::min(kFirstRound, max_work / kFirstShare); outcome == Outcome::kStopped && left > 0 && go_on(); round *= 2) {
    outcome = take_turn<ForwardState>(question, settled, left, round);
    if (outcome == Outcome::kStopped && left > 0) outcome = take_turn<BackwardState>(question, settled, left, round);
  }
  if (outcome != Outcome::kRefuted) return false;
  lines.insert(lines.end(), settled.lines.begin(), settled.lines.end());
  return true;
}

}  // namespace lowtide
