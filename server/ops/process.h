// The daemon as a process of its system: signals that would end it, and the owner of a port. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// Failing calls report what SIGPIPE and SIGXFSZ would; signals of users and timers do nothing.
void ignore_deadly_signals();

// "process 123 (quire)"; empty where none is found, such as for another user's process.
std::string process_listening_on(std::uint16_t port);

}  // namespace quire
