#include "kernels/program/structure.hpp"

#include <algorithm>

namespace lowtide {
namespace {

// Readers of each buffer since its last write; kept only for buffers that are written more than once.
class ReadersSinceWrite {
 public:
  explicit ReadersSinceWrite(const Program& program)
      : head_(program.lifetimes.size(), -1), rewritten_(program.lifetimes.size(), 0) {
    std::vector<uint8_t> exists(program.lifetimes.size());
    for (size_t b = 0; b < exists.size(); ++b) exists[b] = program.lifetimes[b] <= kDonated;
    for (int32_t b : program.mutates.values) rewritten_[b] = 1;
    for (int32_t b : program.writes.values) {
      if (exists[b]) rewritten_[b] = 1;
      exists[b] = 1;
    }
  }
  void add(int32_t buffer, int32_t op) {
    if (!rewritten_[buffer]) return;
    links_.push_back({op, head_[buffer]});
    head_[buffer] = static_cast<int32_t>(links_.size()) - 1;
  }
  template <class Visit>
  void take(int32_t buffer, Visit visit) {
    for (int32_t l = head_[buffer]; l >= 0; l = links_[l].next) visit(links_[l].op);
    head_[buffer] = -1;
  }

 private:
  struct Link {
    int32_t op, next;
  };
  std::vector<int32_t> head_;
  std::vector<uint8_t> rewritten_;
  std::vector<Link> links_;
};

}  // namespace

Structure derive_structure(const Program& program) {
  const auto n_ops = static_cast<int32_t>(program.reads.count());
  const auto n_buffers = static_cast<int32_t>(program.lifetimes.size());
  Structure result;
  result.producers.assign(n_buffers, -1);
  ReadersSinceWrite readers(program);
  std::vector<int32_t> last_writer(n_buffers, -1);
  std::vector<int32_t> touched_by(n_buffers, -1), written_by(n_buffers, -1), predecessor_of(n_ops, -1);
  int32_t last_ordered = -1;

  for (int32_t op = 0; op < n_ops; ++op) {
    auto& predecessors = result.predecessors.values;
    auto depend_on = [&](int32_t earlier) {
      if (earlier < 0 || earlier == op || predecessor_of[earlier] == op) return;
      predecessor_of[earlier] = op;
      predecessors.push_back(earlier);
    };
    auto touch = [&](int32_t buffer) {
      if (touched_by[buffer] == op) return true;
      if (program.lifetimes[buffer] >= kIntermediate && last_writer[buffer] < 0) {
        result.failed_op = op;
        result.failed_buffer = buffer;
        return false;
      }
      touched_by[buffer] = op;
      result.touches.values.push_back(buffer);
      depend_on(last_writer[buffer]);
      return true;
    };
    auto rewrite = [&](int32_t buffer) {
      if (!touch(buffer)) return false;
      readers.take(buffer, depend_on);
      written_by[buffer] = op;
      return true;
    };

    const size_t first_touch = result.touches.values.size();
    for (int32_t buffer : program.reads[op])
      if (!touch(buffer)) return result;
    for (int32_t buffer : program.mutates[op])
      if (!rewrite(buffer)) return result;
    for (int32_t buffer : program.writes[op]) {
      const bool exists = program.lifetimes[buffer] <= kDonated || last_writer[buffer] >= 0;
      if (exists) {
        if (!rewrite(buffer)) return result;
      } else if (result.producers[buffer] < 0) {
        result.producers[buffer] = op;
        result.allocates.values.push_back(buffer);
      }
    }
    for (int32_t earlier : program.after[op]) depend_on(earlier);
    if (program.ordered[op]) {
      depend_on(last_ordered);
      last_ordered = op;
    }

    for (int32_t buffer : program.reads[op])
      if (written_by[buffer] != op) readers.add(buffer, op);
    for (size_t t = first_touch; t < result.touches.values.size(); ++t)
      if (written_by[result.touches.values[t]] == op) last_writer[result.touches.values[t]] = op;
    for (int32_t buffer : program.writes[op])
      if (result.producers[buffer] == op) last_writer[buffer] = op;

    std::sort(predecessors.begin() + result.predecessors.offsets.back(), predecessors.end());
    std::sort(result.touches.values.begin() + result.touches.offsets.back(), result.touches.values.end());
    std::sort(result.allocates.values.begin() + result.allocates.offsets.back(), result.allocates.values.end());
    result.allocates.end_row();
    result.touches.end_row();
    result.predecessors.end_row();
  }
  result.successors = transpose(result.predecessors.view(), n_ops);
  result.users = transpose(result.touches.view(), n_buffers);
  return result;
}

}  // namespace lowtide
