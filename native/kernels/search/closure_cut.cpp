#include "kernels/search/closure_cut.hpp"

namespace lowtide {

ClosureCutter::ClosureCutter(const GraphView& graph, int32_t space, bool in_place)
    : graph_(graph), space_(space), in_place_(in_place), node_(graph.n_ops, -1) {
  for (int32_t b = 0; b < graph.n_buffers; ++b)
    if (graph.lifetimes[b] == kInput && graph.spaces[b] == space) kept_inputs_ += graph.sizes[b];
}

void ClosureCutter::enter(int32_t op) {
  op_ = op;
  mark_comparable();
  find_neighbors();
}

void ClosureCutter::mark_comparable() {
  side_.assign(graph_.n_ops, kFree);
  auto spread = [&](const Rows& rows, Side side) {
    queue_.assign(1, op_);
    for (size_t i = 0; i < queue_.size(); ++i)
      for (int32_t next : rows[queue_[i]])
        if (side_[next] == kFree) {
          side_[next] = side;
          queue_.push_back(next);
        }
  };
  spread(graph_.predecessors, kBefore);
  side_[op_] = kAfter;
  spread(graph_.successors, kAfter);
  free_ops_.clear();
  for (int32_t o = 0; o < graph_.n_ops; ++o)
    if (side_[o] == kFree) free_ops_.push_back(o);
}

void ClosureCutter::find_neighbors() {
  buffers_.clear();
  elsewhere_ = kept_inputs_;
  for (int32_t b = 0; b < graph_.n_buffers; ++b) {
    const uint8_t lifetime = graph_.lifetimes[b];
    if (graph_.spaces[b] != space_ || graph_.sizes[b] == 0 || lifetime == kPersistent || lifetime == kInput) continue;
    const int32_t producer = graph_.producers[b];
    if (producer < 0 ? lifetime != kDonated : side_[producer] == kAfter) continue;
    bool near = producer >= 0 && side_[producer] == kFree, kept = lifetime == kOutput;
    for (int32_t user : graph_.users[b]) {
      near |= side_[user] == kFree;
      kept |= side_[user] == kAfter;
    }
    if (near)
      buffers_.push_back(b);
    else if (kept)
      elsewhere_ += graph_.sizes[b];
  }
}

bool ClosureCutter::may_take_over(int32_t op, int32_t read, int32_t written) const {
  return graph_.producers[written] == op && graph_.freeable(read) && graph_.sizes[read] == graph_.sizes[written] &&
         graph_.spaces[read] == graph_.spaces[written] && graph_.spaces[read] == space_;
}

// Builds the flow graph for the op entered; returns the bytes that are there in any case.
int64_t ClosureCutter::build(MaxFlow& flow, std::vector<Named>* named) {
  auto add = [&](int32_t from, int32_t to, int64_t capacity, int32_t first, int32_t second, bool is_use) {
    const int64_t edge = flow.add_edge(from, to, capacity);
    if (named) named->push_back({edge, first, second, is_use});
  };
  for (int32_t o : free_ops_)
    if (side_[o] == kFree) node_[o] = flow.add_node();
  auto node_of = [&](int32_t o) {
    return side_[o] == kFree ? node_[o] : side_[o] == kBefore ? MaxFlow::kSource : MaxFlow::kSink;
  };
  for (int32_t o : free_ops_)
    if (side_[o] == kFree)
      for (int32_t earlier : graph_.predecessors[o])
        if (side_[earlier] == kFree) add(node_[o], node_[earlier], MaxFlow::kInfinite, o, earlier, false);

  int64_t fixed = elsewhere_ + graph_.scratch[int64_t{op_} * graph_.n_spaces + space_];
  // Charges the bytes of `b` when `from` is before and not all of `users` are (those on the source side never are missing).
  auto charge = [&](int32_t b, int32_t from, std::span<const int32_t> users, int32_t but_not) {
    const int64_t size = graph_.sizes[b];
    int32_t single = -1, joint = -1, free_users = 0;
    for (int32_t user : users) {
      if (user == but_not || side_[user] == kBefore) continue;
      if (side_[user] == kAfter) {
        if (from == MaxFlow::kSource)
          fixed += size;
        else
          add(from, MaxFlow::kSink, size, b, user, true);
        return;
      }
      single = user;
      ++free_users;
    }
    if (free_users == 0) return;
    if (free_users == 1) {
      add(from, node_[single], size, b, single, true);
      return;
    }
    joint = flow.add_node();
    flow.add_edge(from, joint, size);
    for (int32_t user : users)
      if (user != but_not && side_[user] == kFree) add(joint, node_[user], MaxFlow::kInfinite, b, user, true);
  };

  for (int32_t b : buffers_) {
    const int32_t producer = graph_.producers[b];
    const int32_t from = producer < 0 ? MaxFlow::kSource : node_of(producer);
    if (from == MaxFlow::kSink) continue;
    if (graph_.lifetimes[b] == kOutput) {
      if (from == MaxFlow::kSource)
        fixed += graph_.sizes[b];
      else
        add(from, MaxFlow::kSink, graph_.sizes[b], b, op_, true);
    } else {
      charge(b, from, graph_.users[b], -1);
    }
  }
  for (int32_t b : graph_.allocates[op_])
    if (graph_.spaces[b] == space_) fixed += graph_.sizes[b];
  if (in_place_) {
    const auto pairs = graph_.in_place[op_];
    for (int32_t written : graph_.allocates[op_]) {
      int32_t candidate = -1, candidates = 0;
      for (size_t i = 0; i + 1 < pairs.size(); i += 2)
        if (pairs[i + 1] == written && may_take_over(op_, pairs[i], written)) {
          candidate = pairs[i];
          ++candidates;
        }
      if (candidates == 0) continue;
      fixed -= graph_.sizes[written];
      // With one candidate the saving is real only when every other user of it ran before.
      if (candidates == 1) charge(written, MaxFlow::kSource, graph_.users[candidate], op_);
    }
  }

  return fixed;
}

ClosureCut ClosureCutter::cut(int32_t op) {
  enter(op);
  MaxFlow flow(2);
  const int64_t fixed = build(flow);
  ClosureCut result;
  result.peak = fixed + flow.run();
  result.work = flow.work() + flow.n_edges() + graph_.n_ops;
  result.before.assign(graph_.n_ops, 0);
  for (int32_t o = 0; o < graph_.n_ops; ++o)
    result.before[o] = side_[o] == kBefore || (side_[o] == kFree && flow.on_source_side(node_[o]));
  return result;
}

CutFlow ClosureCutter::flow(int32_t op) {
  enter(op);
  MaxFlow flow(2);
  std::vector<Named> named;
  build(flow, &named);
  flow.run();
  CutFlow result;
  for (const Named& each : named)
    if (const int64_t bytes = flow.carried(each.edge)) {
      auto& moves = each.is_use ? result.uses : result.dependencies;
      moves.insert(moves.end(), {each.first, each.second, bytes});
    }
  return result;
}

ClosureCutter::Probe::Probe(ClosureCutter& cutter, int32_t op)
    : cutter_(cutter), flow_(2), before_edge_(cutter.graph_.n_ops, -1), after_edge_(cutter.graph_.n_ops, -1) {
  cutter.enter(op);
  const int64_t fixed = cutter.build(flow_);
  for (int32_t o : cutter.free_ops_) {
    before_edge_[o] = flow_.add_edge(MaxFlow::kSource, cutter.node_[o], 0);
    after_edge_[o] = flow_.add_edge(cutter.node_[o], MaxFlow::kSink, 0);
  }
  peak_ = fixed + flow_.run();
  base_ = flow_.residual();
}

int64_t ClosureCutter::Probe::peak_with(int32_t other, bool before) {
  ++probes_;
  flow_.restore(base_);
  flow_.widen(before ? before_edge_[other] : after_edge_[other]);
  return peak_ + flow_.run();
}

}  // namespace lowtide
