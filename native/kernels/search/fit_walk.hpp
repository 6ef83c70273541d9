// One direction of the search for an order within a budget.
#pragma once
#include <algorithm>
#include <unordered_set>

#include "kernels/search/closure_cut.hpp"
#include "kernels/program/comparable.hpp"
#include "kernels/search/execution_state.hpp"
#include "kernels/search/fit_search.hpp"
#include "kernels/search/valley.hpp"

namespace lowtide {

// An op that comes close to the budget in some memory space.
struct CriticalOp {
  int32_t op, space;
};

template <class State>
class FitWalk {
 public:
  FitWalk(const GraphView& graph, bool in_place, const Bytes& budget, std::span<const int32_t> preference,
          const std::vector<CriticalOp>& critical)
      : state_(graph, in_place), budget_(budget), rank_(graph.n_ops), foreign_(graph.n_ops, 0), comparable_(comparable_with_all(graph)),
        valley_(graph),
        net_(graph.n_spaces), peak_(graph.n_spaces),
        turned_away_(graph.n_spaces, INT64_MAX), committed_live_(state_.live()) {
    for (size_t i = 0; i < preference.size(); ++i) {
      const auto place = static_cast<int32_t>(i);
      rank_[preference[i]] = State::kForward ? place : -place;
    }
    for (size_t i = 0; i < critical.size(); ++i) {
      critical_.push_back({critical[i].op, critical[i].space, i});
      cutters_.emplace_back(graph, critical[i].space, in_place);
      cutters_.back().enter(critical[i].op);
    }
  }

  // Searches until `max_work` more was done; `others` are the ops that the other direction has settled.
  Fit search(std::span<const int32_t> others, int64_t max_work, const std::function<bool()>& go_on) {
    max_work_ = work + max_work;
    if (!started_ || others.size() != n_foreign_) {
      for (int32_t op : others) foreign_[op] = 1;
      n_foreign_ = others.size();
      started_ = true;
      rewind(committed_);
      forget();
      arrive();
      if (done()) return Fit::kFound;
    }
    while (!frames_.empty()) {
      if (work >= max_work_ || (states % 256 == 0 && !go_on())) return Fit::kStopped;
      Frame& frame = frames_.back();
      rewind(frame.path_length);
      if (frame.next == choices_.size()) {
        choices_.resize(frame.first);
        frames_.pop_back();
        continue;
      }
      take(choices_[frame.next++]);
      arrive();
      if (done()) return Fit::kFound;
    }
    return Fit::kImpossible;
  }

  bool done() const { return state_.path().size() + n_foreign_ == foreign_.size(); }
  const std::vector<int32_t>& path() const { return state_.path(); }
  std::span<const int32_t> settled() const { return std::span(state_.path()).first(committed_); }
  const Bytes& turned_away() const { return turned_away_; }

  int64_t states = 0, flows = 0, work = 0;

 private:
  struct Frame {
    size_t path_length, first, next;
    Bytes live;
  };
  struct Choice {
    int64_t net;
    int32_t rank, op;
  };
  static constexpr int64_t kAllCriticalEvery = 16;  // sets at which all critical ops are tried
  static constexpr size_t kCriticalTried = 2;       // how many are tried at the others
  static constexpr size_t kValleysTried = 16;       // choices that are followed in search of a valley
  static constexpr int64_t kWorkPerSet = 512, kWorkPerChoice = 64, kWorkPerLook = 8;  // in arcs of a flow

  // Takes an op; one that is comparable with all others leads to a set that every order passes, so that is settled.
  void take(int32_t op) {
    state_.take(op);
    if (comparable_[op]) settle();
  }

  void settle() {
    committed_ = state_.path().size();
    committed_live_ = state_.live();
    forget();
  }

  // Enters the present set: closes it, settles what can be, and lists the ways on unless it was seen or is doomed.
  void arrive() {
    for (;;) {
      close();
      if (done()) return;
      drop_alternatives();
      commit();
      if (!visited_.insert(state_.fingerprint()).second) return;
      ++states;
      if (doomed()) return;
      list_choices();
      if (work >= max_work_ || !take_valley()) break;
      if (done()) return;
    }
    frames_.push_back({state_.path().size(), choices_.size(), choices_.size(), state_.live()});
    for (const auto& choice : sorted_) choices_.push_back(choice.op);
  }

  void list_choices() {
    sorted_.clear();
    work += kWorkPerSet + kWorkPerChoice * static_cast<int64_t>(state_.ready().size());
    for (int32_t op : state_.ready())
      if (!foreign_[op] && try_fit(op)) {
        state_.change(op, net_);
        int64_t net = 0;
        for (int64_t n : net_) net += n;
        sorted_.push_back({net, rank_[op], op});
      }
    std::sort(sorted_.begin(), sorted_.end(),
              [](const Choice& a, const Choice& b) { return a.net != b.net ? a.net < b.net : a.rank < b.rank; });
  }

  // Takes the first choice that leads, after closing, to a valley seen from here: no other choice can do better then.
  bool take_valley() {
    const size_t length = state_.path().size();
    const Bytes live = state_.live();
    for (size_t i = 0; i < sorted_.size() && i < kValleysTried && work < max_work_; ++i) {
      take(sorted_[i].op);
      close();
      if (committed_ > length || done() || (fits(state_.live(), live) && is_valley(length))) return true;
      rewind(length);
    }
    return false;
  }

  // Leaves out the alternatives on the way here from every set that the present one is a valley of.
  void drop_alternatives() {
    while (!frames_.empty() && fits(state_.live(), frames_.back().live) && is_valley(frames_.back().path_length)) {
      choices_.resize(frames_.back().first);
      frames_.pop_back();
    }
  }

  // Whether no closed set between the one after `length` ops of the path and the present one has less live bytes.
  bool is_valley(size_t length) {
    const auto segment = std::span(state_.path()).subspan(length);
    for (int32_t s = 0; s < state_.graph().n_spaces; ++s) {
      const auto in = find_valley(segment, s);
      if (!std::all_of(in.begin(), in.end(), [](uint8_t i) { return i == State::kForward; })) return false;
    }
    return std::all_of(segment.begin(), segment.end(), [&](int32_t op) { return state_.never_hinders(op); });
  }

  // Going backward the segment is what was removed: the least set there is the one that keeps least of it.
  std::vector<uint8_t> find_valley(std::span<const int32_t> segment, int32_t space) {
    ++flows;
    auto in = valley_.find(
        segment, [&](int32_t op) { return state_.taken(op) == State::kForward; }, space, State::kForward);
    work += valley_.work();
    return in;
  }

  bool try_fit(int32_t op) {
    state_.peak(op, peak_);
    bool fitting = true;
    for (size_t s = 0; s < peak_.size(); ++s)
      if (peak_[s] > budget_[s]) {
        turned_away_[s] = std::min(turned_away_[s], peak_[s]);
        fitting = false;
      }
    return fitting;
  }

  bool raises(int32_t op) {
    state_.change(op, net_);
    return std::any_of(net_.begin(), net_.end(), [](int64_t n) { return n > 0; });
  }

  void close() {
    for (bool changed = true; changed && !done();) {
      changed = false;
      for (size_t i = 0; i < state_.ready().size();) {
        const int32_t op = state_.ready()[i];
        work += kWorkPerLook;
        if (!foreign_[op] && !raises(op) && state_.never_hinders(op) && try_fit(op)) {
          take(op);
          changed = true;
        } else {
          ++i;
        }
      }
    }
  }

  // Settles everything up to the least closed set since the last commit, if that is not the committed one itself.
  void commit() {
    if (state_.path().size() == committed_) return;
    const int32_t n_spaces = state_.graph().n_spaces;
    for (int32_t s = 0; s < n_spaces; ++s)
      if (state_.live()[s] > committed_live_[s]) return;
    const std::vector<int32_t> segment(state_.path().begin() + static_cast<int64_t>(committed_), state_.path().end());
    std::vector<int32_t> before;
    for (int32_t s = 0; s < n_spaces; ++s) {
      const auto in = find_valley(segment, s);
      before.clear();
      for (size_t i = 0; i < segment.size(); ++i)
        if (in[i] == State::kForward) before.push_back(segment[i]);
      // With several spaces only a set that is least in all of them will do.
      if (before.empty() || (n_spaces > 1 && before.size() < segment.size())) return;
    }
    const bool settled = (before.size() == segment.size() || retake(before)) &&
                         std::all_of(before.begin(), before.end(), [&](int32_t op) { return state_.never_hinders(op); });
    if (!settled) {
      rewind(committed_);
      for (int32_t op : segment) state_.take(op);
      return;
    }
    settle();
  }

  // Goes back to the last commit and takes `ops` only. Their peaks are no higher without the rest, unless they needed
  // the rest for an in-place pair: then it is false.
  bool retake(const std::vector<int32_t>& ops) {
    rewind(committed_);
    for (int32_t op : ops) {
      if (!try_fit(op)) return false;
      state_.take(op);
    }
    return true;
  }

  // Whether some op that is still to come cannot run within the budget any more.
  bool doomed() {
    const size_t most = states % kAllCriticalEvery == 0 ? critical_.size() : kCriticalTried;
    size_t tried = 0;
    for (size_t i = 0; i < critical_.size() && tried < most; ++i) {
      const auto [op, space, cutter] = critical_[i];
      if (state_.taken(op) || foreign_[op]) continue;
      ++tried;
      ++flows;
      const int64_t peak = cutters_[cutter].least_peak(
          [&](int32_t other) {
            if (state_.taken(other)) return State::kForward ? ClosureCutter::kBefore : ClosureCutter::kAfter;
            if (foreign_[other]) return State::kForward ? ClosureCutter::kAfter : ClosureCutter::kBefore;
            return ClosureCutter::kFree;
          },
          work);
      if (peak > budget_[space]) {
        turned_away_[space] = std::min(turned_away_[space], peak);
        // What dooms one set often dooms the next one.
        const auto place = critical_.begin() + static_cast<int64_t>(i);
        std::rotate(critical_.begin(), place, place + 1);
        return true;
      }
    }
    return false;
  }

  void rewind(size_t length) {
    while (state_.path().size() > length) state_.undo();
  }

  void forget() {
    frames_.clear();
    choices_.clear();
    visited_.clear();
  }

  State state_;
  const Bytes budget_;
  std::vector<int32_t> rank_;
  std::vector<uint8_t> foreign_;  // per op: settled by the other direction
  std::vector<uint8_t> comparable_;  // per op: comparable with all others
  ValleyFinder valley_;
  struct Critical {
    int32_t op, space;
    size_t cutter;
  };
  std::vector<ClosureCutter> cutters_;  // one per critical op, which it has entered
  std::vector<Critical> critical_;      // what doomed a set last comes first
  Bytes net_, peak_, turned_away_, committed_live_;
  int64_t max_work_ = 0;
  size_t n_foreign_ = 0, committed_ = 0;
  bool started_ = false;
  std::vector<Frame> frames_;
  std::vector<int32_t> choices_;
  std::vector<Choice> sorted_;
  std::unordered_set<SetFingerprint, SetFingerprintHash> visited_;
};

}  // namespace lowtide
