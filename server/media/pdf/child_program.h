// run_child: runs a program over untrusted input in a process of its own: a new process group, no environment, no open
// files but the standard streams, no sockets, limits of memory, time and output. Any thread that may wait. Invariant:
// neither the process nor one that it started outlives the call.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace quire {

struct ChildProgram {
  std::string path;
  std::vector<std::string> arguments{};    // without the program's own name
  std::int64_t memory = 0;                 // bytes of its address space
  std::chrono::milliseconds max_time{};    // from its start to its end; its processor time too
  std::int64_t max_output = 0;             // bytes of its standard output
  std::function<bool()> is_unwanted = {};  // ends it early
};

enum class ChildEnd { kDone, kNotStarted, kFailed, kTooSlow, kTooMuch, kUnwanted };

struct ChildOutput {
  ChildEnd end = ChildEnd::kNotStarted;
  int status = 0;  // kFailed: exit status, or 128 and the signal; kNotStarted: errno
  std::string bytes;
};

// `input` is the program's standard input.
ChildOutput run_child(const ChildProgram& program, const std::string& input);

}  // namespace quire
