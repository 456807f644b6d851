#include "core/model/formats/files/file_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <ctime>
#include <iterator>

namespace quire {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
// Clock margin, since some file systems keep whole seconds.
constexpr std::int64_t kWholeSeconds = 2 * kSecond;

// Magic numbers of statfs(2): ext2 to ext4, XFS, Btrfs, F2FS, ZFS, bcachefs, overlayfs.
constexpr std::uint32_t kReliable[] = {0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x794C7630};

std::int64_t nanoseconds(const statx_timestamp& time) {
  return time.tv_sec * kSecond + time.tv_nsec;
}

// The file system's number, if only the kernel sets its times.
std::optional<std::uint64_t> reliable_system(int file) {
  struct statfs system {};
  if (::fstatfs(file, &system) != 0 || (static_cast<std::uint64_t>(system.f_flags) & ST_RDONLY) != 0)
    return std::nullopt;
  if (std::ranges::find(kReliable, static_cast<std::uint32_t>(system.f_type)) == std::end(kReliable))
    return std::nullopt;
  return std::bit_cast<std::uint64_t>(system.f_fsid);
}

class OpenedFile {
 public:
  explicit OpenedFile(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~OpenedFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int get() const { return file_; }

 private:
  int file_;
};

}  // namespace

std::optional<FileStamp> stamp_of(int file) {
  struct statx status {};
  if (::statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &status) != 0) return std::nullopt;
  FileStamp stamp{.device = makedev(status.stx_dev_major, status.stx_dev_minor),
                  .inode = status.stx_ino,
                  .size = status.stx_size,
                  .modified = nanoseconds(status.stx_mtime),
                  .changed = nanoseconds(status.stx_ctime),
                  .born = nanoseconds(status.stx_btime)};
  // A read-only image has no birth time, and its change times were chosen by its maker.
  const bool has_birth = (status.stx_mask & STATX_BTIME) != 0 && stamp.born > 0 && stamp.changed >= stamp.born;
  const auto system = reliable_system(file);
  stamp.system = system.value_or(0);
  stamp.is_reliable = has_birth && S_ISREG(status.stx_mode) && system.has_value();
  return stamp;
}

std::optional<FileStamp> stamp_of(const std::filesystem::path& path) {
  const OpenedFile file(path);
  return file.get() < 0 ? std::nullopt : stamp_of(file.get());
}

bool settle(const std::filesystem::path& path, const FileStamp& stamp, std::int64_t now) {
  if (!stamp.is_reliable) return false;
  const OpenedFile file(path);
  if (file.get() < 0 || ::fsync(file.get()) != 0 || stamp_of(file.get()) != stamp) return false;
  return now - stamp.changed > (stamp.changed % kSecond == 0 ? kWholeSeconds : 0);
}

std::int64_t stamping_clock() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now.tv_sec * kSecond + now.tv_nsec;
}

}  // namespace quire
