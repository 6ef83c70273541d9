#include "onnxruntime/spare.hpp"

#include <algorithm>
#include <deque>
#include <mutex>

#include "onnxruntime/pages.hpp"

namespace lowtide::onnxruntime {

namespace {

struct Pages {
  void* begin;
  std::size_t bytes;
};

struct Spare {
  std::mutex mutex;
  std::deque<Pages> kept;  // the oldest first
  std::size_t bytes = 0;
  std::size_t limit = 0;

  void drop_beyond_limit() {
    while (bytes > limit) {
      bytes -= kept.front().bytes;
      unmap_pages(kept.front().begin, kept.front().bytes);
      kept.pop_front();
    }
  }
};

// Never destroyed: callers may let results go while the process ends.
Spare& spare() {
  static Spare* const one = new Spare;
  return *one;
}

}  // namespace

void limit_spare(std::size_t bytes) {
  Spare& all = spare();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.limit = bytes;
  all.drop_beyond_limit();
}

void* take_spare(std::size_t bytes) {
  Spare& all = spare();
  {
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = std::find_if(all.kept.begin(), all.kept.end(),
                                    [bytes](const Pages& pages) { return pages.bytes == bytes; });
    if (found != all.kept.end()) {
      void* begin = found->begin;
      all.kept.erase(found);
      all.bytes -= bytes;
      unpoison(begin, bytes);
      return begin;
    }
  }
  return map_pages(bytes);
}

void give_spare(void* pages, std::size_t bytes) {
  Spare& all = spare();
  const std::lock_guard<std::mutex> lock(all.mutex);
  poison(pages, bytes);
  all.kept.push_back(Pages{pages, bytes});
  all.bytes += bytes;
  all.drop_beyond_limit();
}

}  // namespace lowtide::onnxruntime
