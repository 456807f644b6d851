#include "core/model/formats/files/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/message_text.h"
#include "core/base/result.h"

namespace quire {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw StartupError(fmt::format("{}: {}", path.string(), what));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(const std::filesystem::path& path)
      // O_NONBLOCK: opening a FIFO must not wait for its writer; it has no effect on regular files.
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) fail(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  }
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

bool is_there(const std::filesystem::path& path) {
  std::error_code failed;
  if (std::filesystem::exists(path, failed)) return true;
  if (!std::filesystem::is_symlink(path, failed)) return false;
  const auto target = std::filesystem::read_symlink(path, failed);
  fail(path, fmt::format("is a link to {}, which is not there: a snapshot of the hub's cache needs the folder 'blobs' "
                         "beside it (copy or mount the whole models--OWNER--NAME), or download the model again",
                         printable(target.string(), 400)));
}

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  is_there(path);
  const FileDescriptor file(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) fail(path, "is not a regular file");
  if (status.st_size == 0) fail(path, "is empty: its download was not finished, download it again");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail(path, fmt::format("cannot be mapped: {}", std::strerror(errno)));
  bytes_ = {static_cast<const std::byte*>(address), size};
  stamp_ = stamp_of(file.get()).value_or(FileStamp{});
  name_ = NamedMapping(bytes_, path.string());
}

MappedFile::~MappedFile() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::prefer_huge_pages() const {
  ::madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_HUGEPAGE);
}

void MappedFile::release(std::span<const std::byte> range) const {
  // Releases whole pages only: pages that reach beyond the range stay.
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(range.data() - bytes_.data());
  const std::size_t begin = (offset + page - 1) / page * page;
  const std::size_t end = (offset + range.size()) / page * page;
  // A failure only costs memory for a while.
  if (begin < end) ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace quire
