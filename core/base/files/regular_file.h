// Opens files that a user names as regular files only: a FIFO, a device or a folder is refused without waiting for a
// FIFO's writer. Any thread. A mount that does not answer still blocks the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace quire {

// An open regular file, for reading.
class RegularFile {
 public:
  RegularFile(int descriptor, std::uint64_t size) : descriptor_(descriptor), size_(size) {}
  ~RegularFile();
  RegularFile(RegularFile&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), size_(std::exchange(other.size_, 0)) {}
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int descriptor() const { return descriptor_; }
  std::uint64_t size() const { return size_; }  // bytes when it was opened

 private:
  int descriptor_;
  std::uint64_t size_;
};

// Opens the file. The error completes a sentence whose subject is the path: "is not a regular file, but a FIFO".
tl::expected<RegularFile, std::string> open_regular_file(const std::filesystem::path& path);

// Reads the whole file, at most `most` bytes; a file that changes meanwhile is refused.
tl::expected<std::string, std::string> read_regular_file(const std::filesystem::path& path, std::size_t most);

// Limit of a PEM file: a certificate, a list of authorities or a key.
inline constexpr std::size_t kMostPemBytes = std::size_t{4} << 20;

// A secret in a file, as Kubernetes and systemd pass them to a process: its text without the line breaks at the end, at
// most a few kilobytes. The error completes a sentence whose
// subject is the path.
tl::expected<std::string, std::string> read_secret_file(const std::string& path);

}  // namespace quire
