// The limits of the operating system that an exception came from. Any thread.
#pragma once

#include <exception>
#include <filesystem>
#include <string>

namespace quire {

// What an exception says. Where the system refused a thread or memory: which limits are set, and what to change. root:
// where /proc and /sys are found, for tests.
std::string describe_failure(const std::exception& error, const std::filesystem::path& root = "/");

}  // namespace quire
