#include "arena/arena.hpp"

#include <algorithm>

#include "arena/pages.hpp"

namespace lowtide::arena {

Arena::~Arena() { unmap_pages(base_, bytes_); }

bool Arena::enter(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entered_) return false;
  if (bytes > bytes_) {
    if (!live_.empty()) return false;
    void* larger = map_pages(bytes);
    if (larger == nullptr) return false;
    unmap_pages(base_, bytes_);
    base_ = static_cast<char*>(larger);
    bytes_ = bytes;
    poison(base_, bytes_);
  }
  entered_ = true;
  ++time_;
  return true;
}

void Arena::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  entered_ = false;
}

std::vector<Arena::Block>::const_iterator Arena::first_from(std::size_t offset) const {
  return std::lower_bound(live_.begin(), live_.end(), offset,
                          [](const Block& block, std::size_t at) { return block.begin < at; });
}

bool Arena::is_free(std::size_t offset, std::size_t end) const {
  const auto next = first_from(offset);
  if (next != live_.end() && next->begin < end) return false;
  return next == live_.begin() || std::prev(next)->end <= offset;
}

void* Arena::claim(std::size_t offset, std::size_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (offset > bytes_ || size > bytes_ - offset || size == 0) return nullptr;
  const std::size_t end = offset + size;
  if (!is_free(offset, end)) return nullptr;
  if (live_.empty()) self_ = shared_from_this();
  live_.insert(first_from(offset), Block{offset, end});
  unpoison(base_ + offset, size);
  return base_ + offset;
}

void Arena::release(const void* block) {
  std::shared_ptr<Arena> last;  // destroyed after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(block) - base_);
  const auto found = first_from(offset);
  poison(base_ + offset, found->end - found->begin);
  live_.erase(found);
  if (live_.empty()) last = std::move(self_);
}

void* Arena::lend(std::size_t offset, std::size_t bytes, std::uint64_t& time) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (offset > bytes_ || bytes > bytes_ - offset || bytes == 0 || offset != whole_pages(offset)) return nullptr;
  if (!is_free(offset, offset + bytes)) return nullptr;
  time = time_;
  return move_pages_away(base_ + offset, bytes);
}

bool Arena::take_back(void* pages, std::size_t offset, std::size_t bytes, std::uint64_t time) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (time != time_ || !is_free(offset, offset + bytes)) return false;
  return move_pages_back(pages, bytes, base_ + offset);
}

bool Arena::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entered_ || !live_.empty()) return false;
  drop_pages(base_, bytes_);
  ++time_;
  return true;
}

std::size_t Arena::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

std::size_t Arena::live_blocks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return live_.size();
}

}  // namespace lowtide::arena
