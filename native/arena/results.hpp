// Pages for what outlives a run: its blocks lie in them one after the other.

#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace lowtide::arena {

// Smaller blocks lie on the heap, so that one that is kept for long keeps nothing else.
constexpr std::size_t kLeastResult = std::size_t{1} << 14;

// One mapping, held by its run and by each block in it. Let go by all, it is kept for the next run that needs as much.
// Where some blocks are kept longer than others, the pages of those others go back to the system when the next run needs
// pages. All functions may be called from any thread.
class Results {
 public:
  // For so many bytes, held by the caller; null where memory is short.
  static Results* of(std::size_t bytes);

  // Null where that does not fit any more.
  void* take(std::size_t bytes);
  void give(void* block, std::size_t bytes);
  void leave();

  // Keep at most so many bytes for later runs: what one run's results take. More is given back, the oldest first.
  static void limit_spare(std::size_t bytes);

  ~Results();
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;

 private:
  using Range = std::pair<std::size_t, std::size_t>;

  Results(void* begin, std::size_t bytes);
  void let_go();
  void drop_dead_pages();
  static void drop_beyond_limit();

  char* begin_;
  std::size_t bytes_;
  std::size_t used_ = 0;
  std::size_t holders_ = 1;
  std::vector<Range> dead_;  // what was given back since pages were dropped last
};

}  // namespace lowtide::arena
