// Runs code that must end the program in a child process. One thread at a time.
#pragma once

#include <functional>
#include <string>

namespace quire::test {

struct Death {
  int signal = 0;       // signal that ended the child; 0: it lived
  std::string message;  // the child's standard error
};

Death death_of(const std::function<void()>& body);

}  // namespace quire::test
