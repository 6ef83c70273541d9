#include "kernels/recompute/states.hpp"

#include <algorithm>
#include <bit>
#include <queue>
#include <unordered_map>

namespace lowtide {
namespace {

constexpr int64_t kAsked = 1 << 16;   // work between two questions whether to go on
constexpr size_t kCompared = 64;      // earlier states with the same ops that a state is compared with

Items operator|(Items a, const Items& b) {
  for (size_t w = 0; w < a.words.size(); ++w) a.words[w] |= b.words[w];
  return a;
}
Items operator&(Items a, const Items& b) {
  for (size_t w = 0; w < a.words.size(); ++w) a.words[w] &= b.words[w];
  return a;
}
Items without(Items a, const Items& b) {
  for (size_t w = 0; w < a.words.size(); ++w) a.words[w] &= ~b.words[w];
  return a;
}
bool holds(const Items& all, const Items& some) { return without(some, all) == Items{}; }

template <class Visit>
void each(const Items& items, Visit visit) {
  for (size_t w = 0; w < items.words.size(); ++w)
    for (uint64_t left = items.words[w]; left; left &= left - 1)
      visit(static_cast<int32_t>(64 * w) + std::countr_zero(left));
}

Items items_of(const std::vector<int32_t>& row) {
  Items items;
  for (int32_t item : row) items.add(item);
  return items;
}

struct Key {
  uint64_t done = 0;
  Items resident;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = key.done * 0x9e3779b97f4a7c15;
    for (uint64_t word : key.resident.words) hash = (std::rotl(hash, 23) ^ word) * 0xbf58476d1ce4e5b9;
    return hash ^ (hash >> 29);
  }
};

struct State {
  Key key;
  double cost;
  int32_t parent, op;
};

struct Open {
  double least;  // of all plans through the state
  int32_t ran, state;
  bool operator<(const Open& other) const {  // the top of the queue: least cost, most done, oldest
    if (least != other.least) return least > other.least;
    return ran != other.ran ? ran < other.ran : state > other.state;
  }
};

struct Op {
  uint64_t before = 0;
  Items needs, leaves, replaces, own, wanted;  // wanted: what its needs may take, through all that runs again
};

class StateSearch {
 public:
  StateSearch(const StatesProblem& problem, int64_t budget, int64_t max_work, const std::function<bool()>& go_on)
      : problem_(problem), budget_(budget), max_work_(max_work), go_on_(go_on), n_ops_(static_cast<int32_t>(problem.ops.size())),
        ops_(problem.ops.size()), maker_(problem.item_bytes.size(), -1),
        all_(n_ops_ == kMostStateOps ? ~uint64_t{0} : (uint64_t{1} << n_ops_) - 1), at_end_(items_of(problem.at_end)) {
    for (int32_t o = 0; o < n_ops_; ++o) {
      const StatesOp& given = problem.ops[o];
      Op& op = ops_[o];
      for (int32_t earlier : given.before) op.before |= uint64_t{1} << earlier;
      op.needs = items_of(given.needs);
      op.leaves = items_of(given.leaves);
      op.replaces = items_of(given.replaces);
      op.own = items_of(given.own);
      for (int32_t item : given.leaves) maker_[item] = o;
    }
    for (Op& op : ops_) op.wanted = with_sources(op.needs);
    wanted_at_end_ = with_sources(at_end_);
    for (size_t item = 0; item < maker_.size(); ++item)
      if (problem.may_go[item]) may_go_.add(static_cast<int32_t>(item));
  }

  StatesResult run() {
    if (problem_.start_bytes > budget_) {
      result_.end = StatesEnd::kImpossible;
      return result_;
    }
    reach({0, cleaned(0, items_of(problem_.at_start))}, 0, -1, -1);
    while (!open_.empty()) {
      if (result_.work >= max_work_ || !may_go_on()) return result_;
      const Open next = open_.top();
      open_.pop();
      const State state = states_[next.state];
      if (known_.find(state.key)->second != next.state) continue;  // reached again for less
      result_.bound = std::max(result_.bound, next.least);
      if (state.key.done == all_ && holds(state.key.resident, at_end_)) return found(next.state);
      if (!is_beaten(state)) expand(next.state, state);
    }
    if (result_.work < max_work_) result_.end = StatesEnd::kImpossible;
    return result_;
  }

 private:
  struct Choice {
    int32_t item;
    int32_t written;  // the buffer that takes the item's bytes over, -1 for a free before the run
    int32_t left;     // what the run leaves in the item's place, gone with its bytes; -1 for nothing
    int64_t bytes;
  };

  // Items and all that it may take to make them, by ops that may run again.
  Items with_sources(Items items) const {
    for (Items todo = items; todo != Items{};) {
      Items more;
      each(todo, [&](int32_t item) {
        const int32_t maker = maker_[item];
        if (maker >= 0 && problem_.ops[maker].again) more = more | ops_[maker].needs;
      });
      todo = without(more, items);
      items = items | more;
    }
    return items;
  }

  // Without what nothing can need any more.
  Items cleaned(uint64_t done, const Items& resident) const {
    Items wanted = wanted_at_end_;
    for (uint64_t left = all_ & ~done; left; left &= left - 1) wanted = wanted | ops_[std::countr_zero(left)].wanted;
    return resident & (wanted | without(resident, may_go_));
  }

  // What must run again after a state at least; below zero where something missing cannot come back.
  double least_rest(const Key& key) const {
    Items needed = at_end_;
    for (uint64_t left = all_ & ~key.done; left; left &= left - 1) needed = needed | ops_[std::countr_zero(left)].needs;
    double cost = 0;
    uint64_t counted = 0;
    bool is_lost = false;
    for (Items todo = without(needed, key.resident); todo != Items{} && !is_lost;) {
      Items more;
      each(todo, [&](int32_t item) {
        const int32_t maker = maker_[item];
        is_lost = is_lost || maker < 0;
        if (is_lost || !(key.done >> maker & 1) || counted >> maker & 1) return;
        is_lost = !problem_.ops[maker].again;
        counted |= uint64_t{1} << maker;
        cost += problem_.ops[maker].cost;
        more = more | ops_[maker].needs;
      });
      todo = without(without(more, key.resident), needed);
      needed = needed | more;
    }
    return is_lost ? -1 : cost;
  }

  int64_t bytes_of(const Items& items) const {
    int64_t bytes = 0;
    each(items, [&](int32_t item) { bytes += problem_.item_bytes[item]; });
    return bytes;
  }

  void reach(const Key& key, double cost, int32_t parent, int32_t op) {
    ++result_.work;
    const auto [at, is_new] = known_.try_emplace(key, static_cast<int32_t>(states_.size()));
    if (!is_new) {
      if (states_[at->second].cost <= cost) return;
      at->second = static_cast<int32_t>(states_.size());
    }
    const double rest = least_rest(key);
    if (rest < 0) {
      states_.push_back({key, -1, parent, op});  // costs nothing, so that it is never reached again
      return;
    }
    states_.push_back({key, cost, parent, op});
    open_.push({cost + rest, std::popcount(key.done), static_cast<int32_t>(states_.size()) - 1});
  }

  bool is_beaten(const State& state) {
    auto& others = expanded_[state.key.done];
    for (size_t i = 0; i < std::min(kCompared, others.size()); ++i) {
      const State& other = states_[others[others.size() - 1 - i]];
      if (other.cost <= state.cost && holds(other.key.resident, state.key.resident)) return true;
    }
    others.push_back(known_.find(state.key)->second);
    return false;
  }

  void expand(int32_t index, const State& state) {
    ++result_.states;
    const auto& [done, resident] = state.key;
    for (int32_t o = 0; o < n_ops_; ++o) {
      const Op& op = ops_[o];
      const bool is_again = done >> o & 1;
      if (!holds(resident, op.needs)) continue;
      if (is_again ? !problem_.ops[o].again || holds(resident, op.leaves) : (op.before & ~done) != 0) continue;
      run_op(index, state, o, is_again);
    }
  }

  void run_op(int32_t index, const State& state, int32_t o, bool is_again) {
    const Op& op = ops_[o];
    const Items there = without(state.key.resident, op.own);
    const int64_t bytes = problem_.always_bytes + bytes_of(there) + problem_.ops[o].bytes;
    const uint64_t done = state.key.done | uint64_t{1} << o;
    const double cost = state.cost + (is_again ? problem_.ops[o].cost : 0);
    const auto arrive = [&](const Items& kept) {
      Items then = without(kept, op.replaces) | op.leaves;
      for (size_t t : taken_)
        if (choices_[t].left >= 0) then.drop(choices_[t].left);
      const Items clean = cleaned(done, then);
      if (is_again && clean == state.key.resident) return;
      reach({done, clean}, cost, index, o);
    };
    const int64_t over = bytes - budget_;
    taken_.clear();
    if (over <= 0) {
      arrive(there);
      return;
    }
    choices_.clear();
    each(without(there & may_go_, op.needs), [&](int32_t item) {
      if (problem_.item_bytes[item] > 0) choices_.push_back({item, -1, -1, problem_.item_bytes[item]});
    });
    for (const auto& pair : problem_.ops[o].pairs)
      choices_.push_back({pair.read, pair.written, pair.left, problem_.item_bytes[pair.read]});
    std::stable_sort(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) { return a.bytes > b.bytes; });
    left_.assign(choices_.size() + 1, 0);
    for (size_t c = choices_.size(); c-- > 0;) left_[c] = left_[c + 1] + choices_[c].bytes;
    choose(0, over, there, arrive);
  }

  // Tries all sets of choices that free enough; with the largest first, none can be spared where the last was needed.
  template <class Arrive>
  void choose(size_t from, int64_t over, const Items& kept, const Arrive& arrive) {
    if (over <= 0) {
      arrive(kept);
      return;
    }
    for (size_t c = from; c < choices_.size() && left_[c] >= over; ++c) {
      const Choice& choice = choices_[c];
      if (++result_.work >= max_work_) return;
      const bool clashes = !kept.has(choice.item) || std::any_of(taken_.begin(), taken_.end(), [&](size_t t) {
        return choice.written >= 0 && choices_[t].written == choice.written;
      });
      if (clashes) continue;
      Items fewer = kept;
      fewer.drop(choice.item);
      taken_.push_back(c);
      choose(c + 1, over - choice.bytes, fewer, arrive);
      taken_.pop_back();
    }
  }

  bool may_go_on() {
    if (result_.work < asked_ + kAsked) return true;
    asked_ = result_.work;
    return go_on_();
  }

  StatesResult found(int32_t index) {
    result_.end = StatesEnd::kFound;
    for (; states_[index].parent >= 0; index = states_[index].parent) result_.runs.push_back(states_[index].op);
    std::reverse(result_.runs.begin(), result_.runs.end());
    return result_;
  }

  const StatesProblem& problem_;
  const int64_t budget_, max_work_;
  const std::function<bool()>& go_on_;
  const int32_t n_ops_;
  std::vector<Op> ops_;
  std::vector<int32_t> maker_;  // per item: the op that leaves it, -1 for what is there at the start
  const uint64_t all_;
  Items at_end_, wanted_at_end_, may_go_;
  std::vector<State> states_;
  std::unordered_map<Key, int32_t, KeyHash> known_;
  std::unordered_map<uint64_t, std::vector<int32_t>> expanded_;
  std::priority_queue<Open> open_;
  std::vector<Choice> choices_;
  std::vector<int64_t> left_;  // per choice: bytes of it and all later ones
  std::vector<size_t> taken_;
  int64_t asked_ = 0;
  StatesResult result_;
};

}  // namespace

StatesResult search_states(const StatesProblem& problem, int64_t budget, int64_t max_work,
                           const std::function<bool()>& go_on) {
  return StateSearch(problem, budget, max_work, go_on).run();
}

}  // namespace lowtide
