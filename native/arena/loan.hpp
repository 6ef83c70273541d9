// Pages of an arena in the hands of a caller: results that outlive their run, made where the arena lies idle.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "arena/arena.hpp"

namespace lowtide::arena {

// The pages move to an address of their own, so that the arena stays free for the next run. Where the caller lets go
// before that, they move back, and neither run nor caller ever waits for new pages.
class Loan {
 public:
  // Null where the range is taken, no multiple of pages, or where the system cannot move pages.
  static std::unique_ptr<Loan> of(const std::shared_ptr<Arena>& arena, std::size_t offset, std::size_t bytes);
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  void* pages() const { return pages_; }

 private:
  Loan(const std::shared_ptr<Arena>& arena, std::size_t offset, std::size_t bytes);

  std::weak_ptr<Arena> arena_;
  std::size_t offset_;
  std::size_t bytes_;
  std::uint64_t time_ = 0;
  void* pages_;
};

}  // namespace lowtide::arena
