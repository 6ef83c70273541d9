// Per-op figures that several orders share.
#pragma once
#include "kernels/program/graph_view.hpp"

namespace lowtide {

// Per op, bytes of the buffers it allocates, over all spaces.
std::vector<int64_t> allocated_bytes(const GraphView& graph);

// Per op, how many ops use what it allocates, each counted once.
std::vector<int32_t> user_counts(const GraphView& graph);

}  // namespace lowtide
