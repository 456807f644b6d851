// The settings of the HTTP server. Plain values; immutable once given to a Server.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/api/common/store/response_store.h"
#include "server/batch/batch_options.h"
#include "server/media/media_options.h"
#include "server/ops/keys/security_options.h"
#include "server/ops/reports/request_record.h"
#include "server/ops/reports/span_exporter.h"
#include "server/ops/stream_store.h"
#include "server/wire/tls.h"

namespace quire {

struct TimeoutOptions {
  std::chrono::milliseconds idle{75'000};       // time between two requests of a connection
  std::chrono::milliseconds header{15'000};     // time for the whole head, from its first byte
  std::chrono::milliseconds body{30'000};       // longest pause between bytes of the body
  std::chrono::milliseconds write{60'000};      // longest pause of a client in reading an answer
  std::chrono::milliseconds ping{30'000};       // silence on a stream before a comment line; 0: never
  std::chrono::milliseconds socket{3'600'000};  // age at which a WebSocket takes no further message
};

struct DrainOptions {
  std::chrono::milliseconds delay{0};          // requests are served, but readiness fails
  std::chrono::milliseconds deadline{30'000};  // after the delay, for running requests
};

// Other sites whose pages may use the API: "https://chat.example", or "*" for all. Empty: only the server's own page.
struct CorsOptions {
  std::vector<std::string> origins;
};

// Limits of downloads over /admin.
struct PullOptions {
  bool enabled = false;
  std::vector<std::string> repositories;  // OWNER/NAME or OWNER/*; empty: any
  std::int64_t max_bytes = 0;             // limit for one model; 0: unlimited
};

// Files of conversations that an admin saves and restores by slot number.
struct SlotFileOptions {
  std::string directory;                           // empty: slots are not saved to files
  std::int64_t max_bytes = std::int64_t{4} << 30;  // all files together; a save or restore needs as much host memory
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8080;  // 0: any free port
  std::string unix_socket;    // a path to listen on beside the address; empty: off
  std::string unix_socket_mode = "0660";
  std::string admin_socket_mode = "0600";
  std::string model_root;                       // folder of models for admins; empty: folders of the configured models
  std::chrono::milliseconds exit_when_idle{0};  // time without API requests until the end; 0: never
  std::string admin_listen;                     // ADDRESS:PORT or a path: /admin without a key; empty: off
  std::int32_t io_threads = 1;
  std::int32_t text_threads = 3;
  std::int64_t max_connections = 16384;
  std::int64_t max_connections_per_address = 0;  // 0: unlimited
  std::int64_t max_header_bytes = 32768;
  std::int64_t max_body_bytes = std::int64_t{16} << 20;
  std::int64_t max_queued_bytes = std::int64_t{256} << 20;  // unparsed bodies of all requests
  std::int64_t min_body_rate = 16384;                       // bytes per second that a body needs after `timeout.body`
  std::int64_t max_unread_bytes = std::int64_t{256} << 20;  // all answers that clients have not read
  std::int64_t min_answer_rate = 4096;  // bytes per second that a client must read after `timeout.write`
  std::int64_t list_window = 16;        // sequences of a list of prompts that wait or run at once
  TlsOptions tls;
  TimeoutOptions timeout;
  DrainOptions drain;
  ResumeOptions resume;
  PullOptions pull;
  SlotFileOptions slots;
  CorsOptions cors;
  SecurityOptions security;
  ResponseStoreOptions responses;
  BatchOptions batches;
  MediaOptions media;
  AccessLog access_log = AccessLog::kApi;
  TracingOptions tracing;
};

}  // namespace quire
