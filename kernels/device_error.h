// DeviceError: an error that a device reports: out of memory, a kernel or copy that failed. Thrown by backends only:
// afterwards the device's state is unknown.
#pragma once

#include <stdexcept>

namespace quire {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace quire
