#include "arena/results.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <new>

#include "arena/pages.hpp"

namespace lowtide::arena {

namespace {

struct Shared {
  std::mutex mutex;
  std::deque<std::unique_ptr<Results>> spare;  // the oldest first
  std::size_t bytes = 0;                       // of the spare ones
  std::size_t limit = 0;
  std::vector<Results*> partly_dead;
};

// Never destroyed: callers may let results go while the process ends.
Shared& shared() {
  static Shared* const one = new Shared;
  return *one;
}

}  // namespace

Results::Results(void* begin, std::size_t bytes) : begin_(static_cast<char*>(begin)), bytes_(bytes) {
  poison(begin_, bytes_);
}

Results::~Results() { unmap_pages(begin_, bytes_); }

Results* Results::of(std::size_t bytes) {
  const std::size_t whole = whole_pages(bytes);
  Shared& all = shared();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = std::find_if(all.spare.begin(), all.spare.end(),
                                  [whole](const std::unique_ptr<Results>& one) { return one->bytes_ == whole; });
  if (found != all.spare.end()) {
    Results* again = found->release();
    all.spare.erase(found);
    all.bytes -= whole;
    again->holders_ = 1;
    return again;
  }
  for (Results* one : all.partly_dead) one->drop_dead_pages();
  all.partly_dead.clear();
  void* pages = whole == 0 ? nullptr : map_pages(whole);
  return pages == nullptr ? nullptr : new Results(pages, whole);
}

void* Results::take(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(shared().mutex);
  if (bytes > bytes_ - used_) return nullptr;
  char* block = begin_ + used_;
  used_ += bytes;
  ++holders_;
  unpoison(block, bytes);
  return block;
}

void Results::give(void* block, std::size_t bytes) {
  Shared& all = shared();
  const std::lock_guard<std::mutex> lock(all.mutex);
  poison(block, bytes);
  const auto offset = static_cast<std::size_t>(static_cast<char*>(block) - begin_);
  if (dead_.empty()) all.partly_dead.push_back(this);
  dead_.emplace_back(offset, offset + bytes);
  let_go();
}

void Results::leave() {
  const std::lock_guard<std::mutex> lock(shared().mutex);
  let_go();
}

void Results::let_go() {
  if (--holders_ > 0) return;
  Shared& all = shared();
  all.partly_dead.erase(std::remove(all.partly_dead.begin(), all.partly_dead.end(), this), all.partly_dead.end());
  dead_.clear();
  used_ = 0;
  all.spare.emplace_back(this);
  all.bytes += bytes_;
  drop_beyond_limit();
}

void Results::drop_dead_pages() {
  std::sort(dead_.begin(), dead_.end());
  std::size_t first = 0;
  while (first < dead_.size()) {
    std::size_t next = first + 1;
    while (next < dead_.size() && dead_[next].first == dead_[next - 1].second) ++next;
    const std::size_t begin = whole_pages(dead_[first].first);
    const std::size_t end = whole_pages(dead_[next - 1].second + 1) - whole_pages(1);
    if (begin < end) drop_pages(begin_ + begin, end - begin);
    first = next;
  }
  dead_.clear();
}

void Results::limit_spare(std::size_t bytes) {
  Shared& all = shared();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.limit = whole_pages(bytes);
  drop_beyond_limit();
}

void Results::drop_beyond_limit() {
  Shared& all = shared();
  while (all.bytes > all.limit) {
    all.bytes -= all.spare.front()->bytes_;
    all.spare.pop_front();
  }
}

}  // namespace lowtide::arena
