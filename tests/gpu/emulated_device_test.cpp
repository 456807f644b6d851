// The emulated device's streams, events, memory and failures: errors of the host are detected.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>

#include "kernels/emulated/emulated_device.h"
#include "kernels/gpu/device/device_memory.h"
#include "kernels/gpu/kernels/embed.h"
#include "tests/gpu/death.h"

namespace quire::test {
namespace {

using gpu::Device;
using gpu::DeviceError;
using gpu::DeviceMemory;
using gpu::EmbedArgs;
using gpu::EmulatedDevice;
using gpu::EmulatedDeviceOptions;
using gpu::Event;
using gpu::Stream;

constexpr std::size_t kBytes = 64;
constexpr std::uint64_t kStreamSeeds = 16;

std::vector<std::byte> bytes_of(int value) {
  return std::vector<std::byte>(kBytes, static_cast<std::byte>(value));
}

// A block is written on the copy stream and read on the compute stream behind it.
std::vector<std::byte> hand_over(const EmulatedDeviceOptions& options) {
  EmulatedDevice device(options);
  const DeviceMemory memory(device, kBytes, "a test");
  const std::vector<std::byte> in = bytes_of(5);
  std::vector<std::byte> out = bytes_of(0);
  const Event written = device.create_event();
  device.copy_to_device(memory.data(), in.data(), kBytes, Stream::kCopy);
  device.record(written, Stream::kCopy);
  device.wait(Stream::kCompute, written);
  device.copy_to_host(out.data(), memory.data(), kBytes, Stream::kCompute);
  device.synchronize();
  return out;
}

// Copies four floats of a table of one row, as any kernel reads and writes.
void enqueue_embed(Device& device, const DeviceMemory& table, const DeviceMemory& ids, const DeviceMemory& out) {
  const EmbedArgs args{
      .table = table.data(), .ids = ids.as<std::int32_t>(), .cols = 4, .out = out.as<float>(), .out_stride = 4};
  device.launch(device.kernel("embed F32"), {}, args);
}

}  // namespace

TEST_CASE("a stream sees what it waited for on another one, and a wait that is left out is found") {
  int found = 0;
  for (std::uint64_t seed = 0; seed < kStreamSeeds; ++seed) {
    CHECK(hand_over({.seed = seed}) == bytes_of(5));
    found += hand_over({.seed = seed, .ignore_waits = true}) != bytes_of(5) ? 1 : 0;
  }
  CHECK(found > 0);
}

TEST_CASE("a copy reads and writes host memory as late as a device may") {
  EmulatedDevice device({});
  const DeviceMemory memory(device, kBytes, "a test");
  std::vector<std::byte> in = bytes_of(5);
  std::vector<std::byte> out = bytes_of(0);
  device.copy_to_device(memory.data(), in.data(), kBytes, Stream::kCompute);
  device.copy_to_host(out.data(), memory.data(), kBytes, Stream::kCompute);
  CHECK(out == bytes_of(0xff));
  std::ranges::fill(in, std::byte{6});  // a slot that is used again too early
  device.synchronize();
  CHECK(out == bytes_of(6));
}

TEST_CASE("an event is done when all before it is, and polling sees it") {
  for (std::uint64_t seed = 0; seed < kStreamSeeds; ++seed) {
    EmulatedDevice device({.seed = seed});
    const DeviceMemory memory(device, kBytes, "a test");
    const Event event = device.create_event();
    CHECK(device.done(event));
    std::vector<std::byte> out = bytes_of(0);
    device.fill(memory.data(), std::byte{3}, kBytes, Stream::kCompute);
    device.copy_to_host(out.data(), memory.data(), kBytes, Stream::kCompute);
    device.record(event, Stream::kCompute);
    int asked = 0;
    while (!device.done(event))
      REQUIRE(++asked < 1000);
    CHECK(out == bytes_of(3));
  }
}

TEST_CASE("new device memory is poisoned") {
  EmulatedDevice device({});
  const DeviceMemory memory(device, kBytes, "a test");
  std::vector<std::byte> out(kBytes);
  device.copy_to_host(out.data(), memory.data(), kBytes, Stream::kCompute);
  device.synchronize();
  CHECK(out == bytes_of(0xff));
}

TEST_CASE("memory that is freed while a kernel still uses it is found") {
  const auto body = [](bool early) {
    EmulatedDevice device({});
    DeviceMemory table(device, 16, "a table");
    const DeviceMemory ids(device, 4, "ids");
    const DeviceMemory out(device, 16, "rows");
    device.fill(table.data(), std::byte{0}, 16, Stream::kCompute);
    device.fill(ids.data(), std::byte{0}, 4, Stream::kCompute);
    enqueue_embed(device, table, ids, out);
    if (!early) device.synchronize();
    table = DeviceMemory();
    device.synchronize();
  };
  CHECK(death_of([&] { body(false); }).signal == 0);
  CHECK(death_of([&] { body(true); }).signal != 0);
}

TEST_CASE("kernels and copies that leave their memory are found") {
  const auto body = [](std::size_t out_bytes, std::size_t copied) {
    EmulatedDevice device({});
    const DeviceMemory table(device, 16, "a table");
    const DeviceMemory ids(device, 4, "ids");
    const DeviceMemory out(device, out_bytes, "rows");
    std::vector<std::byte> host(copied);
    device.fill(ids.data(), std::byte{0}, 4, Stream::kCompute);
    if (copied == 0) enqueue_embed(device, table, ids, out);
    if (copied > 0) device.copy_to_host(host.data(), out.data(), copied, Stream::kCompute);
    device.synchronize();
  };
  CHECK(death_of([&] { body(16, 0); }).signal == 0);
  CHECK(death_of([&] { body(16, 16); }).signal == 0);
  CHECK(death_of([&] { body(0, 0); }).signal == SIGSEGV);
  const Death copied = death_of([&] { body(16, 17); });
  CHECK(copied.signal == SIGABRT);
  CHECK_THAT(copied.message, Catch::Contains("a copy outside of device memory"));
}

TEST_CASE("what does not fit, and what fails by injection, is a DeviceError") {
  EmulatedDevice small({.memory = 1000});
  const DeviceMemory most(small, 900, "a test");
  CHECK(small.free_memory() == 100);
  CHECK_THROWS_WITH(small.allocate(101, "weights"), Catch::Contains("101 bytes for weights"));
  EmulatedDevice failing({.failing_allocation = 1});
  const DeviceMemory first(failing, 10, "a test");
  CHECK_THROWS_AS(failing.allocate(10, "a test"), DeviceError);
}

TEST_CASE("an error of the device stays: every later wait throws it, and events still complete") {
  for (const bool in_copy : {true, false}) {
    EmulatedDevice device({.failing_copy = in_copy ? 1 : -1, .failing_launch = in_copy ? -1 : 0});
    const DeviceMemory table(device, 16, "a table");
    const DeviceMemory ids(device, 4, "ids");
    const DeviceMemory out(device, 16, "rows");
    std::vector<std::byte> host(16);
    const Event event = device.create_event();
    device.fill(ids.data(), std::byte{0}, 4, Stream::kCompute);
    device.copy_to_host(host.data(), out.data(), 16, Stream::kCompute);
    device.synchronize();
    enqueue_embed(device, table, ids, out);
    device.copy_to_host(host.data(), out.data(), 16, Stream::kCompute);
    device.record(event, Stream::kCompute);
    CHECK_THROWS_AS(device.synchronize(event), DeviceError);
    CHECK(device.done(event));
    CHECK_THROWS_AS(device.synchronize(), DeviceError);
  }
}

}  // namespace quire::test
