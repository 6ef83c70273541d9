// The ready ops of LPMF, searchable by size.
#pragma once
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace lowtide {

// A tournament tree over all ops, sorted by size once; every node holds the ready op with the least (net, op) below it.
// Net is what an op adds to the live bytes once it has run. Every operation is O(log n).
class ReadyBySize {
 public:
  explicit ReadyBySize(std::span<const int64_t> sizes);

  void put(int32_t op, int64_t net) { replay(op, {net, op}); }  // enter an op, or change its net
  void remove(int32_t op) { replay(op, {}); }

  // Size of the smallest ready op; there must be one.
  int64_t least_size() const;
  // The ready op of at most `size` bytes with the least net, or -1.
  int32_t least_net_up_to(int64_t size) const;
  // Among the smallest ready ops, the one with the least net.
  int32_t least_net_of_smallest() const { return least_net_up_to(least_size()); }

 private:
  struct Entry {
    int64_t net = std::numeric_limits<int64_t>::max();
    int32_t op = -1;  // nothing is ready here

    bool before(const Entry& other) const {
      if (op < 0 || other.op < 0) return other.op < 0 && op >= 0;
      return net != other.net ? net < other.net : op < other.op;
    }
  };

  void replay(int32_t op, Entry entry);

  std::vector<int64_t> sizes_;   // sorted
  std::vector<int32_t> places_;  // per op: its place among the sorted sizes
  std::vector<Entry> tree_;      // node 1 is the root, the leaves start at n_leaves_
  size_t n_leaves_ = 1;
};

}  // namespace lowtide
