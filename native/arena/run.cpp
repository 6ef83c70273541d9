#include "arena/run.hpp"

#include <atomic>
#include <utility>

namespace lowtide::arena {

namespace {

// A plain pointer: nothing is destroyed when the thread or the process ends, while the runtime may still free blocks.
thread_local Run* current_run = nullptr;

std::atomic<std::uint64_t> last_id{0};

}  // namespace

Run::Run(std::shared_ptr<Arena> arena, std::shared_ptr<const Addresses> addresses)
    : arena_(std::move(arena)), addresses_(std::move(addresses)), id_(++last_id) {}

Run::~Run() { end(); }

Run* Run::current() { return current_run; }

void Run::begin() {
  if (begun_) return;
  begun_ = true;
  if (!recording()) {
    entered_ = arena_->enter(static_cast<std::size_t>(addresses_->arena_bytes));
    if (!entered_) deviation_ = Deviation::arena_in_use;
    Results::limit_spare(addresses_->outliving_bytes);
  }
  before_ = current_run;
  current_run = this;
}

void Run::end() {
  if (!begun_) return;
  begun_ = false;
  if (current_run == this) current_run = before_;
  if (entered_) arena_->leave();
  entered_ = false;
  if (results_ != nullptr) results_->leave();
  results_ = nullptr;
}

void* Run::place(std::size_t size, std::size_t bytes, std::unique_ptr<Loan>& loan) {
  const std::int64_t number = allocations_++;
  if (deviation_ != Deviation::none) return nullptr;
  const auto planned = static_cast<std::int64_t>(addresses_->sizes.size());
  if (number >= planned) {
    deviation_ = Deviation::more_allocations;
    return nullptr;
  }
  const auto index = static_cast<std::size_t>(number);
  if (addresses_->sizes[index] != static_cast<std::int64_t>(size)) {
    deviation_ = Deviation::other_size;
    return nullptr;
  }
  const std::int64_t offset = addresses_->offsets[index];
  if (offset == kOutside) return nullptr;
  if (offset < kOutside) {
    loan = Loan::of(arena_, static_cast<std::size_t>(kOutside - 1 - offset), bytes);
    return loan == nullptr ? nullptr : loan->pages();
  }
  void* block = arena_->claim(static_cast<std::size_t>(offset), bytes);
  if (block == nullptr) {
    deviation_ = Deviation::address_in_use;
    return nullptr;
  }
  ++served_;
  return block;
}

void* Run::result(std::size_t bytes, Results*& results) {
  if (results_ == nullptr) results_ = Results::of(addresses_->outliving_bytes);
  results = results_;
  return results_ == nullptr ? nullptr : results_->take(bytes);
}

std::int64_t Run::note(std::size_t size) {
  recorded_.push_back(Recorded{static_cast<std::int64_t>(size), events_++, -1});
  return allocations_++;
}

void Run::note_freed(std::int64_t number) { recorded_[static_cast<std::size_t>(number)].freed = events_++; }

}  // namespace lowtide::arena
