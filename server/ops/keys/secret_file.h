// A secret in a file, as Kubernetes and systemd pass them to a process. Any thread.
#pragma once

#include <string>
#include <tl/expected.hpp>

namespace quire {

// The file's text without the line breaks at its end, at most a few kilobytes. The error completes a sentence whose
// subject is the path.
tl::expected<std::string, std::string> read_secret_file(const std::string& path);

}  // namespace quire
