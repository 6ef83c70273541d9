#include "onnxruntime/run.hpp"

#include <atomic>
#include <utility>

#include "onnxruntime/spare.hpp"

namespace lowtide::onnxruntime {

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
    limit_spare(static_cast<std::size_t>(addresses_->outliving_bytes));
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
}

void* Run::place(std::size_t size, std::size_t bytes) {
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
  if (offset < 0) return nullptr;
  void* block = arena_->claim(static_cast<std::size_t>(offset), bytes);
  if (block == nullptr) {
    deviation_ = Deviation::address_in_use;
    return nullptr;
  }
  ++served_;
  return block;
}

std::int64_t Run::note(std::size_t size) {
  recorded_.push_back(Recorded{static_cast<std::int64_t>(size), events_++, -1});
  return allocations_++;
}

void Run::note_freed(std::int64_t number) { recorded_[static_cast<std::size_t>(number)].freed = events_++; }

}  // namespace lowtide::onnxruntime
