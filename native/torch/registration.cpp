// How PyTorch comes to use the allocator on the CPU.
//
// PyTorch lets a program replace the allocator of CPU tensors, from C++ only. Its functions are found by name, in the
// library that is loaded already, and handed over by Python; the classes that pass between the two are declared here
// again, member for member as in c10/core/Allocator.h and c10/util/UniqueVoidPtr.h. Who calls checks that the version
// of PyTorch is one whose declarations these are.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "arena/allocator.hpp"
#include "arena/exported.hpp"

namespace {

using Deleter = void (*)(void*);

struct Device {
  std::int8_t type = 0;  // the CPU
  std::int8_t index = -1;
};

// As c10::DataPtr: the data, who owns it and how it is freed, and the device. Returned in memory, since the owner has a
// destructor.
struct DataPtr {
  void* data;
  std::unique_ptr<void, Deleter> owner;
  Device device;
};

// What PyTorch's profiler is told, so that it counts these allocations as its own.
struct Reporter {
  void* (*instance)();
  void (*made)(void* reporter, void* data, std::size_t size);
  void (*freed)(void* reporter, void* data);
};

Reporter reporter{};

void release(void* data) {
  if (data == nullptr) return;
  reporter.freed(reporter.instance(), data);
  lowtide::arena::release(data);
}

// As c10::Allocator: virtual functions in the order of their declaration.
class Allocator {
 public:
  Allocator() = default;
  virtual ~Allocator() = default;

  virtual DataPtr allocate(std::size_t size) {
    if (size == 0) return DataPtr{nullptr, {nullptr, &release}, {}};
    void* data = lowtide::arena::allocate(size);
    if (data == nullptr) throw std::bad_alloc();
    reporter.made(reporter.instance(), data, size);
    return DataPtr{data, {data, &release}, {}};
  }
  virtual bool is_simple_data_ptr(const DataPtr& pointer) const { return pointer.data == pointer.owner.get(); }
  virtual Deleter raw_deleter() const { return &release; }
  virtual void copy_data(void* to, const void* from, std::size_t count) const { std::memcpy(to, from, count); }
};

constexpr std::uint8_t kPriority = 1;  // PyTorch's own has 0

}  // namespace

// Let PyTorch allocate CPU tensors here from now on: `set` is c10::SetCPUAllocator, the others are the functions of its
// memory reporter. What was allocated before is freed as it was made.
EXPORTED void lowtide_register_with_torch(void (*set)(void*, std::uint8_t), void* (*instance)(),
                                          void (*made)(void*, void*, std::size_t), void (*freed)(void*, void*)) {
  static Allocator* registered = nullptr;
  if (registered != nullptr) return;
  reporter = Reporter{instance, made, freed};
  registered = new Allocator;  // PyTorch frees with it until the process ends
  set(registered, kPriority);
}
