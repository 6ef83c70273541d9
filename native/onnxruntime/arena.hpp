// One region of memory whose blocks lie where a plan says, as long as nobody lives there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lowtide::onnxruntime {

// A plan's addresses are wishes, and the table of live blocks decides: two live blocks never overlap, whatever the
// plans say, from however many threads and sessions. A region lives as long as any of its blocks does.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // Reserve the region for one run and make it at least so large; false where another run has it, where it would have
  // to move under live blocks, or where memory is short. O(live blocks).
  bool enter(std::size_t bytes);
  void leave();

  // The bytes [offset, offset + size), or null where any of them is taken or outside. O(live blocks).
  void* claim(std::size_t offset, std::size_t size);
  void release(const void* block);

  // Give the pages back to the system, unless a run or a block needs them; their addresses stay.
  bool trim();

  std::size_t bytes() const;
  std::size_t live_blocks() const;

 private:
  struct Block {
    std::size_t begin;
    std::size_t end;
  };

  mutable std::mutex mutex_;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool entered_ = false;
  std::vector<Block> live_;  // by address; a run has few of them at once
  std::shared_ptr<Arena> self_;  // set while a block lives
};

}  // namespace lowtide::onnxruntime
