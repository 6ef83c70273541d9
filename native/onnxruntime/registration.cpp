// How ONNX Runtime comes to use the allocator.
//
// It loads this library as one of custom operators and calls RegisterCustomOps with its C API; that is the only way in
// that its Python package leaves open. The allocator serves sessions that ask for the environment's allocators
// (session.use_env_allocators) and no others. The C API only ever grows at its end, so its functions are found by
// position; positions and types are those of onnxruntime_c_api.h, version 14 and later.

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "arena/allocator.hpp"
#include "arena/exported.hpp"

namespace {

constexpr std::uint32_t kApiVersion = 14;
constexpr std::size_t kCreateEnv = 3;
constexpr std::size_t kCreateCpuMemoryInfo = 69;
constexpr std::size_t kRegisterAllocator = 176;
constexpr int kWarnings = 2;
constexpr int kDeviceAllocator = 0;
constexpr int kDefaultMemory = 0;

using Status = void*;

struct ApiBase {
  void* const* (*get_api)(std::uint32_t version);
  const char* (*get_version)();
};

struct Allocator {
  std::uint32_t version;
  void* (*alloc)(Allocator*, std::size_t);
  void (*free)(Allocator*, void*);
  const void* (*info)(const Allocator*);
};

void* memory_info = nullptr;

void* allocate(Allocator*, std::size_t size) { return lowtide::arena::allocate(size); }
void release(Allocator*, void* data) { lowtide::arena::release(data); }
const void* info(const Allocator*) { return memory_info; }

Allocator allocator{kApiVersion, allocate, release, info};

Status register_allocator(const ApiBase* base) {
  void* const* api = base->get_api(kApiVersion);
  void* environment = nullptr;
  const auto create_env = reinterpret_cast<Status (*)(int, const char*, void**)>(api[kCreateEnv]);
  if (Status failed = create_env(kWarnings, "lowtide", &environment)) return failed;
  const auto describe = reinterpret_cast<Status (*)(int, int, void**)>(api[kCreateCpuMemoryInfo]);
  if (Status failed = describe(kDeviceAllocator, kDefaultMemory, &memory_info)) return failed;
  const auto add = reinterpret_cast<Status (*)(void*, Allocator*)>(api[kRegisterAllocator]);
  return add(environment, &allocator);
}

}  // namespace

// Called by ONNX Runtime for every session that names this library; the environment is the process's, so once is enough.
EXPORTED Status RegisterCustomOps(void*, const ApiBase* base) {
  static std::mutex mutex;
  static bool done = false;
  const std::lock_guard<std::mutex> lock(mutex);
  if (done) return nullptr;
  Status failed = register_allocator(base);
  done = failed == nullptr;
  return failed;
}
