// Pages of results that a caller has let go, kept for the results of the next run.

#pragma once

#include <cstddef>

namespace lowtide::onnxruntime {

// Keep at most so many bytes: what one run's results take. More than that is given back, the oldest first.
void limit_spare(std::size_t bytes);

// Pages of exactly so many bytes that were kept, or new ones; null where memory is short.
void* take_spare(std::size_t bytes);
void give_spare(void* pages, std::size_t bytes);

}  // namespace lowtide::onnxruntime
