// Finds the process that listens on a port, from /proc. Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// "process 123 (quire)"; empty where none is found, such as for another user's process.
std::string process_listening_on(std::uint16_t port);

}  // namespace quire
