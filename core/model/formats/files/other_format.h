// Names the format of a file that was mistaken for a model: a pointer, a page, an archive. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace quire {

enum class FileFormat : std::uint8_t { kGguf, kSafetensors, kJson };

// The format of the bytes and advice, for a message; empty if they may be of the wanted format or are no known
// mistake.
std::string other_format(std::span<const std::byte> bytes, FileFormat wanted);

}  // namespace quire
