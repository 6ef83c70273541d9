// An allocator for ONNX Runtime that counts live bytes, so that a run's real peak can be read.
//
// ONNX Runtime loads this library as one of custom operators and calls RegisterCustomOps with its C API; that is the
// only way in that its Python package leaves open. The allocator serves sessions that ask for the environment's
// allocators (session.use_env_allocators) and no others. The C API only ever grows at its end, so its functions are
// found by position; positions and types are those of onnxruntime_c_api.h, version 14 and later.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#if defined(_WIN32)
#define EXPORTED extern "C" __declspec(dllexport)
#else
#define EXPORTED extern "C" __attribute__((visibility("default")))
#endif

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

// Every block is preceded by its size; a whole cache line keeps the data aligned.
constexpr std::size_t kHeader = 64;

std::atomic<std::int64_t> live_bytes{0};
std::atomic<std::int64_t> peak_bytes{0};
void* memory_info = nullptr;

void* allocate(Allocator*, std::size_t size) {
  if (size > SIZE_MAX - 2 * kHeader) return nullptr;
  void* block = ::operator new(size + kHeader, std::align_val_t{kHeader}, std::nothrow);
  if (block == nullptr) return nullptr;
  *static_cast<std::int64_t*>(block) = static_cast<std::int64_t>(size);
  const std::int64_t now = live_bytes.fetch_add(static_cast<std::int64_t>(size)) + static_cast<std::int64_t>(size);
  std::int64_t seen = peak_bytes.load();
  while (now > seen && !peak_bytes.compare_exchange_weak(seen, now)) {
  }
  return static_cast<char*>(block) + kHeader;
}

void release(Allocator*, void* data) {
  if (data == nullptr) return;
  void* block = static_cast<char*>(data) - kHeader;
  live_bytes.fetch_sub(*static_cast<std::int64_t*>(block));
  ::operator delete(block, std::align_val_t{kHeader});
}

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

// Bytes allocated and not freed now.
EXPORTED std::int64_t lowtide_live_bytes() { return live_bytes.load(); }

// The largest value of lowtide_live_bytes since the last restart.
EXPORTED std::int64_t lowtide_peak_bytes() { return peak_bytes.load(); }

// Begin a new peak at what is live now.
EXPORTED void lowtide_restart_peak() { peak_bytes.store(live_bytes.load()); }
