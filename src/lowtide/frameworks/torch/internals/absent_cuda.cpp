// A CUDA device that is not there, for a process that traces programs on fake tensors and runs no kernel.
//
// Tracing and autograd need three parts of a CUDA build: a device guard, hooks that describe the device, and the choice
// of an attention kernel. The guard and the hooks replace those of the process, with or without CUDA, so that the
// library may be loaded after PyTorch.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <new>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;

int capability = 80;

Device only_device() { return Device(DeviceType::CUDA, 0); }
Stream only_stream() { return Stream(Stream::DEFAULT, only_device()); }

// Streams and events do nothing, because nothing runs.
struct AbsentGuard final : c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  DeviceIndex deviceCount() const noexcept override { return 1; }
  Device getDevice() const override { return only_device(); }
  Device exchangeDevice(Device) const override { return only_device(); }
  Stream getStream(Device) const noexcept override { return only_stream(); }
  Stream getNewStream(Device, int) const override { return only_stream(); }
  Stream getDefaultStream(Device) const override { return only_stream(); }
  Stream exchangeStream(Stream) const noexcept override { return only_stream(); }
  void record(void**, const Stream&, const DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
};

struct AbsentHooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool hasCuSOLVER() const override { return true; }
  bool hasCuDNN() const override { return true; }
  bool compiledWithCuDNN() const override { return true; }
  bool supportsDilatedConvolutionWithCuDNN() const override { return true; }
  bool supportsDepthwiseConvolutionWithCuDNN() const override { return true; }
  bool supportsBFloat16ConvolutionWithCuDNNv8() const override { return capability >= 80; }
  long versionCuDNN() const override { return 92000; }
  long versionRuntimeCuDNN() const override { return 92000; }
  double batchnormMinEpsilonCuDNN() const override { return 0.0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  int getNumGPUs() const override { return 1; }
  void deviceSynchronize(DeviceIndex) const override {}
};

// Hooks have no members, so one kind can take the place of another in the object that PyTorch keeps.
static_assert(sizeof(AbsentHooks) == sizeof(at::CUDAHooksInterface));

bool is_half(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kHalf || (tensor.scalar_type() == at::kBFloat16 && capability >= 80);
}

// The order of PyTorch without cuDNN's attention, and the limits of its kernels.
int64_t attention_kernel(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& mask,
    double,
    bool,
    std::optional<double>,
    bool is_grouped) {
  const auto& context = at::globalContext();
  const auto width = query.sym_size(-1);
  const bool is_dense = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  const bool has_equal_widths = width == value.sym_size(-1);
  const bool fits_flash = is_dense && !mask && is_half(query) && capability >= 80 && has_equal_widths && width <= 256;
  if (context.userEnabledFlashSDP() && fits_flash) {
    return static_cast<int64_t>(sdp::SDPBackend::flash_attention);
  }
  const bool fits_efficient = is_dense && !is_grouped && (is_half(query) || query.scalar_type() == at::kFloat);
  if (context.userEnabledMemEfficientSDP() && fits_efficient) {
    return static_cast<int64_t>(sdp::SDPBackend::efficient_attention);
  }
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

const AbsentGuard guard;

}  // namespace

// Replace the CUDA device of this process by one of a compute capability: 90 for 9.0.
extern "C" void lowtide_become_cuda_device(int compute_capability) {
  capability = compute_capability;
  c10::impl::registerDeviceGuard(DeviceType::CUDA, &guard);
  auto* hooks = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  new (hooks) AbsentHooks();
  at::native::_fused_sdp_choice_stub.set_cuda_dispatch_ptr(&attention_kernel);
}
