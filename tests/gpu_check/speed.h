// Figures of a device: its memory's rate, and the kernels' times at several numbers of rows. One thread.
#pragma once

#include <memory>
#include <string_view>

#include "kernels/gpu/device/device.h"

namespace quire::test {

// Prints a table of what has `part` in its name. Takes the device.
void measure(std::unique_ptr<gpu::Device> device, std::string_view part);

}  // namespace quire::test
