#include "config/keys.h"

#include "config/key_types.h"

namespace quire {

namespace types = config_types;

namespace {

constexpr types::Range kSomeOf{1};
constexpr types::Range kSomeBytesOf{1, std::numeric_limits<std::int64_t>::max()};

BatchOptions& batches_of(Config& config) {
  return config.serve.server.batches;
}

}  // namespace

std::vector<ConfigKey> batch_keys() {
  return {
      types::text(
          {"batches.directory",
           "A directory that keeps uploaded files, batches and their results across restarts; empty: /v1/files and "
           "/v1/batches are not served",
           {"--batches"}},
          [](Config & c) -> auto& { return batches_of(c).directory; }),
      types::size(
          {"batches.max_bytes", "Maximum size of batches.directory"},
          [](Config & c) -> auto& { return batches_of(c).max_bytes; }, kSomeBytesOf),
      types::size(
          {"batches.max_bytes_per_key", "Maximum size of one API key's files and results"},
          [](Config & c) -> auto& { return batches_of(c).max_bytes_per_key; }, kSomeBytesOf),
      types::size(
          {"batches.max_file_bytes", "The largest file that can be uploaded"},
          [](Config & c) -> auto& { return batches_of(c).max_file_bytes; }, kSomeBytesOf),
      types::integer<std::int64_t>(
          {"batches.max_files_per_key", "Files of one API key; further uploads are refused"},
          [](Config & c) -> auto& { return batches_of(c).max_files_per_key; }, kSomeOf),
      types::integer<std::int64_t>(
          {"batches.max_batches_per_key",
           "Batches of one API key; at the limit, a new batch replaces the oldest that has ended"},
          [](Config & c) -> auto& { return batches_of(c).max_batches_per_key; }, kSomeOf),
      types::integer<std::int64_t>(
          {"batches.max_lines", "Requests of one batch"}, [](Config & c) -> auto& { return batches_of(c).max_lines; },
          kSomeOf),
      types::size(
          {"batches.max_line_bytes", "The largest request of a batch"},
          [](Config & c) -> auto& { return batches_of(c).max_line_bytes; }, kSomeBytesOf),
      types::integer<std::int64_t>(
          {"batches.max_running", "Requests of all batches that wait or run in the engine at the same time"},
          [](Config & c) -> auto& { return batches_of(c).max_running; }, kSomeOf),
      types::duration(
          {"batches.keep", "How long files are kept, and batches after they end"},
          [](Config & c) -> auto& { return batches_of(c).keep; }),
  };
}

}  // namespace quire
