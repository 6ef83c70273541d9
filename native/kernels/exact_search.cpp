#include "kernels/exact_search.hpp"

#include <algorithm>

#include "kernels/max_flow.hpp"

namespace lowtide {
namespace {

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

ExactSearch::ExactSearch(const GraphView& graph, int32_t space, bool in_place)
    : graph_(graph), space_(space), in_place_(in_place), matcher_(graph), allocated_(graph.n_ops, 0),
      rank_(graph.n_ops), keys_(graph.n_ops) {
  for (int32_t op = 0; op < graph.n_ops; ++op) {
    keys_[op] = mix(static_cast<uint64_t>(op) + 1);
    for (int32_t b : graph.allocates[op])
      if (graph.spaces[b] == space) allocated_[op] += graph.sizes[b];
  }
  for (int32_t b = 0; b < graph.n_buffers; ++b) {
    if (graph.spaces[b] != space) continue;
    const bool used = !graph.users[b].empty();
    if (graph.lifetimes[b] == kInput || (graph.lifetimes[b] == kDonated && used)) start_live_ += graph.sizes[b];
  }
}

void ExactSearch::reset() {
  live_ = start_live_;
  waiting_.resize(graph_.n_ops);
  uses_left_.resize(graph_.n_buffers);
  for (int32_t b = 0; b < graph_.n_buffers; ++b) uses_left_[b] = static_cast<int32_t>(graph_.users[b].size());
  ready_.clear();
  ready_place_.assign(graph_.n_ops, -1);
  for (int32_t op = 0; op < graph_.n_ops; ++op) {
    waiting_[op] = static_cast<int32_t>(graph_.predecessors[op].size());
    if (waiting_[op] == 0) {
      ready_place_[op] = static_cast<int32_t>(ready_.size());
      ready_.push_back(op);
    }
  }
  path_.clear();
  executed_.assign(graph_.n_ops, 0);
  bits_.assign((graph_.n_ops + 63) / 64, 0);
  hash_ = 0;
  committed_ = 0;
  committed_live_ = live_;
  frames_.clear();
  candidates_.clear();
  visited_.clear();
  stored_.clear();
  exceeded_ = INT64_MAX;
  flows_ = 0;
}

int64_t ExactSearch::peak_of(int32_t op) {
  int64_t peak = live_ + allocated_[op] + graph_.scratch[int64_t{op} * graph_.n_spaces + space_];
  if (in_place_ && !graph_.in_place[op].empty()) {
    taken_.clear();
    matcher_.match(op, [&](int32_t b) { return uses_left_[b] == 1; }, taken_);
    for (const auto& pair : taken_)
      if (graph_.spaces[pair.read] == space_) peak -= graph_.sizes[pair.read];
  }
  return peak;
}

int64_t ExactSearch::net_of(int32_t op) const {
  int64_t net = 0;
  for (int32_t b : graph_.allocates[op])
    if (graph_.spaces[b] == space_ && (uses_left_[b] > 0 || !graph_.freeable(b))) net += graph_.sizes[b];
  for (int32_t b : graph_.touches[op])
    if (graph_.spaces[b] == space_ && uses_left_[b] == 1 && graph_.freeable(b)) net -= graph_.sizes[b];
  return net;
}

void ExactSearch::run(int32_t op) {
  live_ += net_of(op);
  for (int32_t b : graph_.touches[op]) --uses_left_[b];
  const int32_t place = ready_place_[op], last = ready_.back();
  ready_[place] = last;
  ready_place_[last] = place;
  ready_.pop_back();
  ready_place_[op] = -1;
  for (int32_t next : graph_.successors[op])
    if (--waiting_[next] == 0) {
      ready_place_[next] = static_cast<int32_t>(ready_.size());
      ready_.push_back(next);
    }
  path_.push_back(op);
  executed_[op] = 1;
  bits_[op / 64] ^= uint64_t{1} << (op % 64);
  hash_ ^= keys_[op];
}

void ExactSearch::undo() {
  const int32_t op = path_.back();
  path_.pop_back();
  executed_[op] = 0;
  bits_[op / 64] ^= uint64_t{1} << (op % 64);
  hash_ ^= keys_[op];
  for (int32_t next : graph_.successors[op])
    if (waiting_[next]++ == 0) {
      const int32_t place = ready_place_[next], last = ready_.back();
      ready_[place] = last;
      ready_place_[last] = place;
      ready_.pop_back();
      ready_place_[next] = -1;
    }
  for (int32_t b : graph_.touches[op]) ++uses_left_[b];
  live_ -= net_of(op);
  ready_place_[op] = static_cast<int32_t>(ready_.size());
  ready_.push_back(op);
}

void ExactSearch::close(int64_t budget) {
  for (size_t i = 0; i < ready_.size();) {
    const int32_t op = ready_[i];
    if (net_of(op) <= 0 && peak_of(op) <= budget) {
      run(op);
      i = 0;
    } else {
      ++i;
    }
  }
}

bool ExactSearch::visit() {
  const size_t words = bits_.size();
  auto [it, end] = visited_.equal_range(hash_);
  for (; it != end; ++it)
    if (std::equal(bits_.begin(), bits_.end(), stored_.begin() + static_cast<int64_t>(it->second * words))) return false;
  visited_.emplace(hash_, stored_.size() / words);
  stored_.insert(stored_.end(), bits_.begin(), bits_.end());
  return true;
}

void ExactSearch::push_frame(int64_t budget) {
  struct Choice {
    int64_t net, peak;
    int32_t rank, op;
  };
  std::vector<Choice> choices;
  for (int32_t op : ready_) {
    const int64_t peak = peak_of(op);
    if (peak > budget)
      exceeded_ = std::min(exceeded_, peak);
    else
      choices.push_back({net_of(op), peak, rank_[op], op});
  }
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.net != b.net ? a.net < b.net : a.rank < b.rank;
  });
  frames_.push_back({path_.size(), candidates_.size(), candidates_.size()});
  for (const auto& choice : choices) candidates_.push_back(choice.op);
}

// The closed set between the committed one and the present one with the least live bytes, the largest of them.
std::vector<uint8_t> ExactSearch::least_valley(int64_t& least) {
  // Reversed, so that the least source side (ops not in the set) gives the largest set: an op is on the source side
  // when it is left out.
  MaxFlow flow(2);
  std::vector<int32_t> node(graph_.n_ops, -1);
  for (size_t i = committed_; i < path_.size(); ++i) node[path_[i]] = flow.add_node();
  int64_t fixed = start_live_;
  std::vector<uint8_t> seen(graph_.n_buffers, 0);
  for (int32_t b = 0; b < graph_.n_buffers; ++b)  // what the committed set keeps is counted by the buffers below
    if (graph_.spaces[b] == space_ && graph_.lifetimes[b] == kDonated && !graph_.users[b].empty()) fixed -= graph_.sizes[b];
  auto left_out = [&](int32_t op) { return !executed_[op]; };
  for (size_t i = committed_; i < path_.size(); ++i) {
    const int32_t op = path_[i];
    for (int32_t earlier : graph_.predecessors[op])
      if (node[earlier] >= 0) flow.add_edge(node[earlier], node[op], MaxFlow::kInfinite);
  }
  for (int32_t b = 0; b < graph_.n_buffers; ++b) {
    const uint8_t lifetime = graph_.lifetimes[b];
    if (graph_.spaces[b] != space_ || graph_.sizes[b] == 0 || lifetime == kPersistent || lifetime == kInput) continue;
    const int32_t producer = graph_.producers[b];
    if (producer < 0 && lifetime != kDonated) continue;
    if (producer >= 0 && left_out(producer)) continue;
    const int32_t to = producer >= 0 && node[producer] >= 0 ? node[producer] : MaxFlow::kSink;
    int32_t inside = 0, single = -1;
    bool always = lifetime == kOutput;
    for (int32_t user : graph_.users[b]) {
      if (left_out(user)) always = true;
      if (node[user] >= 0) {
        ++inside;
        single = user;
      }
    }
    if (always) {
      if (to == MaxFlow::kSink)
        fixed += graph_.sizes[b];
      else
        flow.add_edge(MaxFlow::kSource, to, graph_.sizes[b]);
    } else if (inside == 1) {
      flow.add_edge(node[single], to, graph_.sizes[b]);
    } else if (inside > 1) {
      const int32_t joint = flow.add_node();
      flow.add_edge(joint, to, graph_.sizes[b]);
      for (int32_t user : graph_.users[b])
        if (node[user] >= 0) flow.add_edge(node[user], joint, MaxFlow::kInfinite);
    }
  }
  least = fixed + flow.run();
  ++flows_;
  std::vector<uint8_t> kept(graph_.n_ops, 0);
  for (size_t i = 0; i < path_.size(); ++i)
    kept[path_[i]] = node[path_[i]] < 0 || !flow.on_source_side(node[path_[i]]);
  return kept;
}

bool ExactSearch::try_commit(int64_t budget) {
  if (path_.size() == committed_ || live_ > committed_live_) return false;
  int64_t least = 0;
  const auto kept = least_valley(least);
  std::vector<int32_t> valley, rest;
  for (size_t i = committed_; i < path_.size(); ++i) (kept[path_[i]] ? valley : rest).push_back(path_[i]);
  if (valley.empty()) return false;
  if (!rest.empty()) {
    // The valley lies before the present set. Its ops fit in their present order without the rest, unless they needed
    // the rest to take storage over.
    const std::vector<int32_t> before(path_.begin() + static_cast<int64_t>(committed_), path_.end());
    while (path_.size() > committed_) undo();
    for (int32_t op : valley) {
      if (peak_of(op) > budget) {
        while (path_.size() > committed_) undo();
        for (int32_t again : before) run(again);
        return false;
      }
      run(op);
    }
  }
  committed_ = path_.size();
  committed_live_ = live_;
  frames_.clear();
  candidates_.clear();
  visited_.clear();
  stored_.clear();
  return true;
}

FitResult ExactSearch::fit(int64_t budget, std::span<const int32_t> preference, int64_t max_states) {
  for (size_t i = 0; i < preference.size(); ++i) rank_[preference[i]] = static_cast<int32_t>(i);
  reset();
  FitResult result;
  for (;;) {
    close(budget);
    if (path_.size() == static_cast<size_t>(graph_.n_ops)) {
      result.status = FitStatus::kFits;
      result.order = path_;
      break;
    }
    const bool committed = try_commit(budget);
    if (visit()) {
      if (++result.states > max_states) break;
      push_frame(budget);
    } else if (committed) {
      push_frame(budget);
    }
    while (!frames_.empty() && frames_.back().next_candidate == candidates_.size()) {
      candidates_.resize(frames_.back().first_candidate);
      frames_.pop_back();
      // The op that led into the frame just left is undone by the frame below.
      if (!frames_.empty())
        while (path_.size() > frames_.back().path_length) undo();
    }
    if (frames_.empty()) {
      result.status = FitStatus::kImpossible;
      result.next_budget = exceeded_;
      break;
    }
    while (path_.size() > frames_.back().path_length) undo();
    run(candidates_[frames_.back().next_candidate++]);
  }
  result.flows = flows_;
  return result;
}

}  // namespace lowtide
