#include "arena/loan.hpp"

#include "arena/pages.hpp"

namespace lowtide::arena {

Loan::Loan(const std::shared_ptr<Arena>& arena, std::size_t offset, std::size_t bytes)
    : arena_(arena), offset_(offset), bytes_(whole_pages(bytes)), pages_(arena->lend(offset_, bytes_, time_)) {}

Loan::~Loan() {
  if (pages_ == nullptr) return;
  const std::shared_ptr<Arena> arena = arena_.lock();
  if (arena == nullptr || !arena->take_back(pages_, offset_, bytes_, time_)) unmap_pages(pages_, bytes_);
}

std::unique_ptr<Loan> Loan::of(const std::shared_ptr<Arena>& arena, std::size_t offset, std::size_t bytes) {
  std::unique_ptr<Loan> made(new Loan(arena, offset, bytes));
  return made->pages_ == nullptr ? nullptr : std::move(made);
}

}  // namespace lowtide::arena
