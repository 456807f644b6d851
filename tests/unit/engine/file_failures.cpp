#include "tests/unit/engine/file_failures.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace {

using quire::test::FileStep;

std::atomic<std::int64_t> num_until_file_failure{0};  // 1: the next one fails; 0: none does
std::atomic<FileStep> step_that_fails{FileStep::kWrite};

bool is_regular(int descriptor) {
  struct stat status {};
  return descriptor > 2 && ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

bool step_fails(FileStep step) {
  if (num_until_file_failure.load() <= 0 || step_that_fails.load() != step) return false;
  return num_until_file_failure.fetch_sub(1) == 1;
}

int refused() {
  errno = ENOSPC;
  return -1;
}

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t write(int descriptor, const void* bytes, std::size_t size) {
  const bool fails = num_until_file_failure.load() > 0 && is_regular(descriptor) && step_fails(FileStep::kWrite);
  const long written = ::syscall(SYS_write, descriptor, bytes, fails ? size / 2 : size);
  return fails ? refused() : written;
}

extern "C" ssize_t pwrite(int descriptor, const void* bytes, std::size_t size, off_t offset) {
  const bool fails = num_until_file_failure.load() > 0 && is_regular(descriptor) && step_fails(FileStep::kWrite);
  const long written = ::syscall(SYS_pwrite64, descriptor, bytes, fails ? size / 2 : size, offset);
  return fails ? refused() : written;
}

extern "C" int fflush(FILE* file) {
  const bool fails = num_until_file_failure.load() > 0 && file != nullptr && is_regular(::fileno(file)) &&
                     step_fails(FileStep::kWrite);
  return fails ? refused() : original<int(FILE*)>("fflush")(file);
}

extern "C" int fsync(int descriptor) {
  return step_fails(FileStep::kSync) ? refused() : static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int fdatasync(int descriptor) {
  return step_fails(FileStep::kSync) ? refused() : static_cast<int>(::syscall(SYS_fdatasync, descriptor));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  return step_fails(FileStep::kRename) ? refused()
                                       : static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

void quire::test::fail_next_file_step(FileStep step, std::int64_t num_before) {
  step_that_fails.store(step);
  num_until_file_failure.store(num_before + 1);
}

bool quire::test::forget_file_failure() {
  return num_until_file_failure.exchange(0) > 0;
}
