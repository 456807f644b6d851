// The path of a model as an operator writes it, and advice where something else lies there: a repository's name, a
// pointer, a page, an archive. Stateless; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace quire {

// Throws StartupError if nothing is at the path, with advice if it looks like a Hugging Face repository.
void require_model_path(const std::filesystem::path& path);

// The end of a message: the folder's actual content, and advice, in place of a model's config.json or weights. Empty if
// the content is not recognised.
std::string instead_of_config(const std::filesystem::path& directory);
std::string instead_of_weights(const std::filesystem::path& directory);

// The file of a tower (mmproj*.gguf) beside a GGUF file, or in a model's folder; empty: none.
std::filesystem::path find_mmproj(const std::filesystem::path& model);

enum class FileFormat : std::uint8_t { kGguf, kSafetensors, kJson };

// The format of the bytes and advice, for a message; empty if they may be of the wanted format or are no known
// mistake.
std::string other_format(std::span<const std::byte> bytes, FileFormat wanted);

}  // namespace quire
