// Which process listens on a port, as far as /proc shows it to this one. Stateless; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// "process 123 (quire)"; empty where none is found, such as for another user's process.
std::string process_listening_on(std::uint16_t port);

}  // namespace quire
