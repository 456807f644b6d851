// The limits of the operating system behind an exception. Any thread.
#pragma once

#include <exception>
#include <filesystem>
#include <string>

namespace quire {

// Explains an exception. If the system refused a thread or memory, names the limits in force and what to change. root:
// directory that holds /proc and /sys, for tests.
std::string describe_failure(const std::exception& error, const std::filesystem::path& root = "/");

}  // namespace quire
