// The C functions by which Python counts, records and plans.

#include <cstdint>
#include <memory>
#include <utility>

#include "arena/allocator.hpp"
#include "arena/arena.hpp"
#include "arena/exported.hpp"
#include "arena/pages.hpp"
#include "arena/results.hpp"
#include "arena/run.hpp"

using lowtide::arena::Addresses;
using lowtide::arena::Arena;
using lowtide::arena::Recorded;
using lowtide::arena::Run;

using SharedArena = std::shared_ptr<Arena>;
using SharedAddresses = std::shared_ptr<const Addresses>;

// Bytes allocated and not freed now.
EXPORTED std::int64_t lowtide_live_bytes() { return lowtide::arena::live_bytes(); }

// The largest value of lowtide_live_bytes since the last restart.
EXPORTED std::int64_t lowtide_peak_bytes() { return lowtide::arena::peak_bytes(); }

// Begin a new peak at what is live now.
EXPORTED void lowtide_restart_peak() { lowtide::arena::restart_peak(); }

// What a runtime calls, for those who try it without one.
EXPORTED void* lowtide_allocate(std::int64_t size) {
  return lowtide::arena::allocate(static_cast<std::size_t>(size));
}
EXPORTED void lowtide_release(void* data) { lowtide::arena::release(data); }

// What a block of so many bytes takes in an arena.
EXPORTED std::int64_t lowtide_block_bytes(std::int64_t size) {
  return static_cast<std::int64_t>(lowtide::arena::block_bytes(static_cast<std::size_t>(size)));
}

// The whole pages that so many bytes take, in bytes.
EXPORTED std::int64_t lowtide_whole_pages(std::int64_t size) {
  return static_cast<std::int64_t>(lowtide::arena::whole_pages(static_cast<std::size_t>(size)));
}

EXPORTED void* lowtide_arena_create() { return new SharedArena(std::make_shared<Arena>()); }
EXPORTED void lowtide_arena_destroy(void* arena) { delete static_cast<SharedArena*>(arena); }
EXPORTED std::int64_t lowtide_arena_bytes(void* arena) {
  return static_cast<std::int64_t>((*static_cast<SharedArena*>(arena))->bytes());
}
EXPORTED std::int64_t lowtide_arena_live_blocks(void* arena) {
  return static_cast<std::int64_t>((*static_cast<SharedArena*>(arena))->live_blocks());
}
EXPORTED std::int64_t lowtide_arena_trim(void* arena) { return (*static_cast<SharedArena*>(arena))->trim() ? 1 : 0; }

EXPORTED void* lowtide_addresses_create(std::int64_t count, const std::int64_t* sizes, const std::int64_t* offsets,
                                        std::int64_t arena_bytes) {
  auto addresses = std::make_shared<Addresses>();
  addresses->sizes.assign(sizes, sizes + count);
  addresses->offsets.assign(offsets, offsets + count);
  addresses->arena_bytes = arena_bytes;
  for (std::int64_t index = 0; index < count; ++index) {
    const std::size_t bytes = lowtide::arena::block_bytes(static_cast<std::size_t>(sizes[index]));
    if (offsets[index] < 0 && bytes >= lowtide::arena::kLeastResult) addresses->outliving_bytes += bytes;
  }
  return new SharedAddresses(std::move(addresses));
}
EXPORTED void lowtide_addresses_destroy(void* addresses) { delete static_cast<SharedAddresses*>(addresses); }

// Begin a run of this thread; without addresses it is recorded. It must be ended on the same thread.
EXPORTED void* lowtide_run_begin(void* arena, void* addresses) {
  auto run = std::make_unique<Run>(*static_cast<SharedArena*>(arena),
                                   addresses == nullptr ? nullptr : *static_cast<SharedAddresses*>(addresses));
  run->begin();
  return run.release();
}
EXPORTED void lowtide_run_end(void* run) { static_cast<Run*>(run)->end(); }

// Allocations, those served at their addresses, and why it went another way.
EXPORTED void lowtide_run_report(void* run, std::int64_t* report) {
  const Run* made = static_cast<Run*>(run);
  report[0] = made->allocations();
  report[1] = made->served();
  report[2] = static_cast<std::int64_t>(made->deviation());
}

// Rows of size, made, freed of a recorded run; as many as it had allocations.
EXPORTED void lowtide_run_recorded(void* run, std::int64_t* rows) {
  for (const Recorded& row : static_cast<Run*>(run)->recorded()) {
    *rows++ = row.size;
    *rows++ = row.made;
    *rows++ = row.freed;
  }
}

// End and destroy a run; return why it did not follow its addresses. Short programs run often, so this is one call.
EXPORTED std::int64_t lowtide_run_finish(void* run) {
  const std::unique_ptr<Run> made(static_cast<Run*>(run));
  made->end();
  return static_cast<std::int64_t>(made->deviation());
}
