// The reason why a file could not be written, for the log and for answers. Any thread.
#pragma once

#include <string>

namespace quire {

// The text of `error_number`; for EFBIG with the process's limit and the place where it is set.
std::string describe_write_error(int error_number);

// "RLIMIT_FSIZE allows ..."; empty if files of this process may have any size.
std::string describe_file_size_limit();

}  // namespace quire
