// FileStamp: shows whether a file is still the one that was read before. Value type; any thread.
// A file's name, size and modification time prove nothing: any program can set them, and reproducible images and
// archives give all files the same time. The kernel sets the time of change and the inode's time of birth, and no call
// sets them. They are relied on if the file system is writable and keeps them (ext4, XFS, Btrfs, F2FS, ZFS, bcachefs,
// and overlayfs above such), and once the clock has advanced past the time of change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace quire {

struct FileStamp {
  std::uint64_t system = 0;  // the file system's own number
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t modified = 0;  // times in ns since 1970
  std::int64_t changed = 0;
  std::int64_t born = 0;
  bool is_reliable = false;  // the file system keeps the times of change and birth

  bool operator==(const FileStamp&) const = default;
};

// The stamp of an open file; nothing if the system does not give one.
std::optional<FileStamp> stamp_of(int file);
// The stamp of the regular file at a path; does not follow dangling links and does not wait for a FIFO.
std::optional<FileStamp> stamp_of(const std::filesystem::path& path);

// Whether every later change of the file's bytes will change its stamp. Writes modified pages to the disk first: a
// later write through a mapping then counts as a change.
bool settle(const std::filesystem::path& path, const FileStamp& stamp, std::int64_t now);
std::int64_t stamping_clock();  // the kernel's clock for files, in ns since 1970; advances every 10 ms or sooner

}  // namespace quire
