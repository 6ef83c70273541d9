// One run of a session on one thread: its allocations are recorded, or served at planned addresses.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "arena/arena.hpp"
#include "arena/loan.hpp"
#include "arena/results.hpp"

namespace lowtide::arena {

constexpr std::int64_t kOutside = -1;

// What a run allocates, one entry per allocation in order. What outlives the run has an offset below 0: it lies outside of
// the arena, or in pages that are lent, from offset -2 - it on.
struct Addresses {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> offsets;
  std::int64_t arena_bytes = 0;
  std::size_t outliving_bytes = 0;  // of blocks that have offsets below 0, apart from those that lie on the heap
};

enum class Deviation : std::int64_t {
  none = 0,
  arena_in_use = 1,  // by another run, or by blocks that outlive theirs
  other_size = 2,
  more_allocations = 3,
  address_in_use = 4,
};

// When an allocation was made and freed, counted in such events; freed is -1 where it outlives the run.
struct Recorded {
  std::int64_t size;
  std::int64_t made;
  std::int64_t freed;
};

class Run {
 public:
  // Records where there are no addresses.
  Run(std::shared_ptr<Arena> arena, std::shared_ptr<const Addresses> addresses);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // Take this thread's allocations until `end`; what was begun before goes on after it.
  void begin();
  void end();

  // The run of this thread, or null.
  static Run* current();

  // The place that was planned for the next allocation, or null where it goes elsewhere. `size` is what the caller asked
  // for, `bytes` what the block takes; `loan` is set where the place is lent to it.
  void* place(std::size_t size, std::size_t bytes, std::unique_ptr<Loan>& loan);

  // A place for what outlives this run, and what holds it; null where that is not planned to be so much.
  void* result(std::size_t bytes, Results*& results);

  // Note the next allocation of a recording and return its number.
  std::int64_t note(std::size_t size);
  void note_freed(std::int64_t number);

  bool recording() const { return addresses_ == nullptr; }
  bool as_planned() const { return !recording() && deviation_ == Deviation::none; }
  std::uint64_t id() const { return id_; }
  const std::vector<Recorded>& recorded() const { return recorded_; }
  const std::shared_ptr<Arena>& arena() const { return arena_; }
  std::int64_t allocations() const { return allocations_; }
  std::int64_t served() const { return served_; }
  Deviation deviation() const { return deviation_; }

 private:
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<const Addresses> addresses_;
  std::uint64_t id_;
  bool entered_ = false;
  bool begun_ = false;
  Run* before_ = nullptr;
  Results* results_ = nullptr;
  std::int64_t allocations_ = 0;
  std::int64_t served_ = 0;
  std::int64_t events_ = 0;
  Deviation deviation_ = Deviation::none;
  std::vector<Recorded> recorded_;
};

}  // namespace lowtide::arena
