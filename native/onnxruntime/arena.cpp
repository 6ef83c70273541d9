#include "onnxruntime/arena.hpp"

#include <algorithm>

#include "onnxruntime/pages.hpp"

namespace lowtide::onnxruntime {

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
  return true;
}

void Arena::leave() {
  const std::lock_guard<std::mutex> lock(mutex_);
  entered_ = false;
}

void* Arena::claim(std::size_t offset, std::size_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (offset > bytes_ || size > bytes_ - offset || size == 0) return nullptr;
  const std::size_t end = offset + size;
  const auto next = std::lower_bound(live_.begin(), live_.end(), offset,
                                     [](const Block& block, std::size_t at) { return block.begin < at; });
  if (next != live_.end() && next->begin < end) return nullptr;
  if (next != live_.begin() && std::prev(next)->end > offset) return nullptr;
  if (live_.empty()) self_ = shared_from_this();
  live_.insert(next, Block{offset, end});
  unpoison(base_ + offset, size);
  return base_ + offset;
}

void Arena::release(const void* block) {
  std::shared_ptr<Arena> last;  // destroyed after the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::size_t offset = static_cast<std::size_t>(static_cast<const char*>(block) - base_);
  const auto found = std::lower_bound(live_.begin(), live_.end(), offset,
                                      [](const Block& other, std::size_t at) { return other.begin < at; });
  poison(base_ + offset, found->end - found->begin);
  live_.erase(found);
  if (live_.empty()) last = std::move(self_);
}

bool Arena::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (entered_ || !live_.empty()) return false;
  drop_pages(base_, bytes_);
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

}  // namespace lowtide::onnxruntime
