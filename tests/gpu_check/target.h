// The device that is checked against the emulator: of two definitions, the program is linked with one. One thread.
#pragma once

#include <memory>

#include "kernels/gpu/device/device.h"

namespace quire::test {

// Throws DeviceError, one line, if there is no device.
std::unique_ptr<gpu::Device> target_device();

}  // namespace quire::test
