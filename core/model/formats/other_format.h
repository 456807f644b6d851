// Names the format of a file that was taken for a model's: a pointer, a page, an archive. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace quire {

enum class FileFormat : std::uint8_t { kGguf, kSafetensors, kJson };

// The format of the bytes and what to do about it, for a message; empty where they may be of the wanted format or are
// none of the known mistakes.
std::string other_format(std::span<const std::byte> bytes, FileFormat wanted);

}  // namespace quire
