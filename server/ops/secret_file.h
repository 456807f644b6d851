// A secret that lies in a file, as Kubernetes and systemd give them to a process. Any thread.
#pragma once

#include <optional>
#include <string>

namespace quire {

// The file's text without the line breaks at its end, at most a few kilobytes of it; nothing where it cannot be read.
std::optional<std::string> read_secret_file(const std::string& path);

}  // namespace quire
