#include "arena/allocator.hpp"

#include <atomic>
#include <memory>
#include <new>

#include "arena/arena.hpp"
#include "arena/loan.hpp"
#include "arena/pages.hpp"
#include "arena/results.hpp"
#include "arena/run.hpp"

namespace lowtide::arena {

namespace {

constexpr std::size_t kLine = 64;
// Larger blocks take pages of their own, which leave resident memory when freed; the C library keeps them. A run that is
// recorded does so for almost all, since the next one needs none of them; others where it hardly takes time. Results that
// are planned to outlive their run come again with the next and lie in pages of their run's, all but the smallest: on the
// heap every run would leave other holes.
constexpr std::size_t kOwnPages = std::size_t{1} << 18;
constexpr std::size_t kOwnPagesRecording = std::size_t{1} << 12;

enum class Home : std::uint8_t { heap, pages, results, arena, loan };

// Before every block, one cache line, so that the data stays aligned.
struct Header {
  std::int64_t size;
  Arena* arena;
  Loan* loan;
  Results* results;
  std::uint64_t run;
  std::int64_t number;
  Home home;
};
static_assert(sizeof(Header) <= kLine);

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};

void count(std::int64_t size) {
  const std::int64_t now = live.fetch_add(size) + size;
  std::int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

Home home_of(const Run* run, std::size_t bytes) {
  if (run == nullptr) return Home::heap;
  if (run->recording()) return bytes < kOwnPagesRecording ? Home::heap : Home::pages;
  return bytes < kOwnPages ? Home::heap : Home::pages;
}

void* take(std::size_t bytes, Home home) {
  if (home == Home::pages) return map_pages(bytes);
  return ::operator new(bytes, std::align_val_t{kLine}, std::nothrow);
}

}  // namespace

std::size_t block_bytes(std::size_t size) { return kLine + (size + kLine - 1) / kLine * kLine; }

void* allocate(std::size_t size) {
  if (size > SIZE_MAX / 2) return nullptr;
  const std::size_t bytes = block_bytes(size);
  Run* run = Run::current();
  Header header{static_cast<std::int64_t>(size), nullptr, nullptr, nullptr, 0, 0, Home::heap};
  void* block = nullptr;
  if (run != nullptr && !run->recording()) {
    std::unique_ptr<Loan> loan;
    block = run->place(size, bytes, loan);
    if (block != nullptr) {
      header.loan = loan.release();
      header.home = header.loan == nullptr ? Home::arena : Home::loan;
      header.arena = run->arena().get();
    } else if (run->as_planned() && bytes >= kLeastResult) {
      block = run->result(bytes, header.results);
      if (block != nullptr) header.home = Home::results;
    }
  }
  if (block == nullptr) {
    header.home = home_of(run, bytes);
    block = take(bytes, header.home);
    if (block == nullptr) return nullptr;
  }
  if (run != nullptr && run->recording()) {
    header.run = run->id();
    header.number = run->note(size);
  }
  new (block) Header(header);
  count(header.size);
  return static_cast<char*>(block) + kLine;
}

void release(void* data) {
  if (data == nullptr) return;
  char* block = static_cast<char*>(data) - kLine;
  const Header header = *std::launder(reinterpret_cast<const Header*>(block));
  live.fetch_sub(header.size);
  Run* run = Run::current();
  if (run != nullptr && header.run == run->id()) run->note_freed(header.number);
  switch (header.home) {
    case Home::arena:
      header.arena->release(block);
      break;
    case Home::loan:
      delete header.loan;
      break;
    case Home::pages:
      unmap_pages(block, block_bytes(static_cast<std::size_t>(header.size)));
      break;
    case Home::results:
      header.results->give(block, block_bytes(static_cast<std::size_t>(header.size)));
      break;
    case Home::heap:
      ::operator delete(block, std::align_val_t{kLine});
      break;
  }
}

std::int64_t live_bytes() { return live.load(); }
std::int64_t peak_bytes() { return peak.load(); }
void restart_peak() { peak.store(live.load()); }

}  // namespace lowtide::arena
