// One region of memory whose blocks lie where a plan says, as long as nobody lives there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace lowtide::arena {

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

  // Move whole pages of the region, which nobody lives in, to an address of their own; null where that cannot be. `time`
  // tells when.
  void* lend(std::size_t offset, std::size_t bytes, std::uint64_t& time);
  // Move them back; false where a run or a block may have got other pages there since.
  bool take_back(void* pages, std::size_t offset, std::size_t bytes, std::uint64_t time);

  // Give the pages back to the system, unless a run or a block needs them; their addresses stay.
  bool trim();

  std::size_t bytes() const;
  std::size_t live_blocks() const;

 private:
  struct Block {
    std::size_t begin;
    std::size_t end;
  };

  bool is_free(std::size_t offset, std::size_t end) const;
  std::vector<Block>::const_iterator first_from(std::size_t offset) const;

  mutable std::mutex mutex_;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  bool entered_ = false;
  std::uint64_t time_ = 0;  // another one after each entry and trim
  std::vector<Block> live_;  // by address; a run has few of them at once
  std::shared_ptr<Arena> self_;  // set while a block lives
};

}  // namespace lowtide::arena
