// A self-signed certificate for 127.0.0.1 (a bare system may know no "localhost") and its key, as files. Immutable
// after construction.
#pragma once

#include <string>

namespace quire::test {

// A path of this process in the folder for temporary files.
std::string temporary(const std::string& name);

struct Certificate {
  Certificate();

  std::string certificate = temporary("certificate.pem");
  std::string key = temporary("key.pem");
};

// Made once: the numbers take time.
const Certificate& certificate();

}  // namespace quire::test
