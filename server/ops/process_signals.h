// Signals whose default is to end the process, for a daemon that ends by SIGTERM and SIGINT only. Any thread.
#pragma once

namespace quire {

// The call that fails reports what SIGPIPE and SIGXFSZ would; signals of users and timers do nothing.
void ignore_deadly_signals();

}  // namespace quire
