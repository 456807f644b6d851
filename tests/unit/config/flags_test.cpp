#include "config/flags.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "core/base/result.h"

namespace quire {
namespace {

Config resolved(std::vector<std::string> arguments) {
  CLI::App app("test");
  CLI::App* serve = app.add_subcommand("serve");
  ConfigFlags flags(*serve);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  reversed.push_back("serve");
  app.parse(reversed);
  return flags.resolve();
}

std::string flag_refusal(const std::vector<std::string>& arguments) {
  try {
    resolved(arguments);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "it was taken";
}

}  // namespace

TEST_CASE("flags set keys by their path or their short name", "[config]") {
  const Config config =
      resolved({"--model", "m.gguf", "--server.port=9000", "--host", "::1", "--isa", "scalar", "--threads", "2",
                "--scheduler.max-num-seqs", "5", "--kv-cache.memory", "1GiB", "--drain.deadline", "5s"});
  CHECK(config.serve.model.path == "m.gguf");
  CHECK(config.serve.server.port == 9000);
  CHECK(config.serve.server.host == "::1");
  CHECK(config.serve.backend.cpu.isa == "scalar");
  CHECK(config.serve.backend.cpu.threads == 2);
  CHECK(config.serve.engine.scheduler.max_num_seqs == 5);
  CHECK(config.serve.engine.kv_cache.memory == std::int64_t{1} << 30);
  CHECK(config.serve.server.drain.deadline == std::chrono::seconds(5));
}

TEST_CASE("lists and mappings are given as several values", "[config]") {
  const Config config = resolved({"--served-model-name", "a", "b", "--scheduler.key-weights", "x=2", "y=0.5"});
  CHECK(config.serve.model.alias == std::vector<std::string>{"a", "b"});
  CHECK(config.serve.engine.scheduler.key_weights.at("y") == 0.5);
  CHECK(flag_refusal({"--scheduler.key-weights", "x"})
            .starts_with("--scheduler.key-weights: 'scheduler.key_weights' must be a mapping"));
}

TEST_CASE("flags override the file", "[config]") {
  const auto path = std::filesystem::temp_directory_path() / "quire_flags_test.yaml";
  std::ofstream(path) << "server: {port: 1234, host: 10.0.0.1}\n";
  const Config config = resolved({"--config", path.string(), "--port", "4321"});
  std::filesystem::remove(path);
  CHECK(config.serve.server.port == 4321);
  CHECK(config.serve.server.host == "10.0.0.1");
}

TEST_CASE("a bad flag is refused with what would be right", "[config]") {
  CHECK(flag_refusal({"--port", "x"}) == "--server.port: 'server.port' must be an integer from 0 to 65535");
  CHECK(flag_refusal({"--prot", "1"}) == "unknown option '--prot'; did you mean '--port'?");
  CHECK(flag_refusal({"--scheduler.max_num_seqs", "1"}) ==
        "unknown option '--scheduler.max_num_seqs'; did you mean '--scheduler.max-num-seqs'?");
  CHECK(flag_refusal({"--num-blocks", "3", "--kv-cache.memory", "1GiB"}).find("exclude each other") !=
        std::string::npos);
  CHECK(flag_refusal({"--config", "/nonexistent.yaml"}) == "/nonexistent.yaml: cannot be read");
}

}  // namespace quire
