// What the processor's build of torch asks of a GPU: a guard, streams and hooks that do nothing.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
using namespace c10;
static Stream S() { return Stream(Stream::DEFAULT, Device(kCUDA, 0)); }
struct G final : impl::DeviceGuardImplInterface {  // one CUDA device on which nothing is done
  DeviceType type() const override { return kCUDA; }
  Device exchangeDevice(Device) const override { return {kCUDA, 0}; }
  Device getDevice() const override { return {kCUDA, 0}; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return S(); }
  Stream getNewStream(Device, int) const override { return S(); }
  Stream exchangeStream(Stream) const override { return S(); }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const DeviceIndex) const noexcept override {}
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
};
static impl::DeviceGuardImplRegistrar guard(kCUDA, new G);
struct CUDAHooks final : at::CUDAHooksInterface {
  CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  int getNumGPUs() const override { return 1; }
};
namespace at { REGISTER_CUDA_HOOKS(CUDAHooks); }
