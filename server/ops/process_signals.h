// Signals whose default ends the process, for a daemon that ends by SIGTERM and SIGINT only. Any thread.
#pragma once

namespace quire {

// Failing calls report what SIGPIPE and SIGXFSZ would; signals of users and timers do nothing.
void ignore_deadly_signals();

}  // namespace quire
