// DeviceError: what a device reports of itself: memory that it does not have, a kernel or copy that failed. Thrown by
// backends and by nothing else: after one the device's state is unknown.
#pragma once

#include <stdexcept>

namespace quire {

class DeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace quire
