#include "config/config.h"
#include "tests/support/material.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <set>
#include <sstream>

#include "config/keys.h"
#include "core/base/result.h"

namespace quire {
namespace {

std::string refusal(const std::string& yaml) {
  Config config;
  try {
    load_config_text(config, yaml, "quire.yaml");
  } catch (const StartupError& error) {
    CHECK(render_config(config) == render_config({}));  // a refused file changes nothing
    return error.what();
  }
  return "it was taken";
}

std::string shipped_file() {
  std::ifstream file(test::source_folder() / "config/quire.yaml");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Config loaded(const std::string& yaml) {
  Config config;
  load_config_text(config, yaml, "quire.yaml");
  return config;
}

}  // namespace

TEST_CASE("the shipped file lists every key with its default", "[config]") {
  CHECK(shipped_file() == render_config({}));
  for (const ConfigKey& key : config_keys()) {
    const std::string last = key.path.substr(key.path.rfind('.') + 1);
    CHECK(shipped_file().find((key.path == last ? "\n" : " ") + last + ": ") != std::string::npos);
  }
  // It parses to exactly the defaults, even over a configuration in which every key differs.
  Config config = loaded("server: {port: 1, threads: 9}\nlog: {level: debug}\nmodel: {path: x, alias: [a, b]}\n");
  CHECK(render_config(config) != render_config({}));
  load_config_text(config, shipped_file(), "config/quire.yaml");
  CHECK(render_config(config) == render_config({}));
  CHECK(config.serve.server.port == ServerOptions{}.port);
  CHECK(config.serve.model.alias.empty());
}

TEST_CASE("every key can be written and is printed as it was written", "[config]") {
  std::set<std::string> paths;
  for (const ConfigKey& key : config_keys()) {
    CAPTURE(key.path);
    CHECK(paths.insert(key.path).second);
    CHECK_FALSE(key.help.empty());
    Config config;
    // Printed values can be read back.
    const std::string shown = key.get(config);
    std::string yaml;
    std::string indentation;
    std::string rest = key.path;
    for (std::size_t dot = 0; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
      yaml += indentation + rest.substr(0, dot) + ":\n";
      indentation += "  ";
    }
    yaml += indentation + rest + ": " + shown + "\n";
    load_config_text(config, yaml, "quire.yaml");
    CHECK(key.get(config) == shown);
  }
}

TEST_CASE("values reach the options they are for", "[config]") {
  const Config config = loaded(R"(
model: {path: /models/a.gguf, alias: one}
server: {host: 0.0.0.0, port: 8000, timeout: {idle: 5m, header: 500ms}}
scheduler: {max_num_seqs: 7, policy: fair, key_weights: {alice: 2, bob: 0.5}, target_itl: 40ms, max_step_time: 2s,
            priority_aging: 1.5s}
kv_cache: {memory: 4GiB, dtype: bf16, prefix_caching: false, block_size: 32}
backend: {device: cpu, cpu: {isa: scalar, threads: 3, pin: false}}
queue: {max_queued_bytes: 10MB, max_queue_time: 2s}
drain: {delay: 3s, deadline: 0}
log: {format: json}
)");
  CHECK(config.serve.model.path == "/models/a.gguf");
  CHECK(config.serve.model.alias == std::vector<std::string>{"one"});
  CHECK(config.serve.server.host == "0.0.0.0");
  CHECK(config.serve.server.port == 8000);
  CHECK(config.serve.server.timeout.idle == std::chrono::minutes(5));
  CHECK(config.serve.server.timeout.header == std::chrono::milliseconds(500));
  CHECK(config.serve.engine.scheduler.max_num_seqs == 7);
  CHECK(config.serve.engine.scheduler.policy == SchedulerPolicy::kFair);
  CHECK(config.serve.engine.scheduler.key_weights.at("bob") == 0.5);
  CHECK(config.serve.engine.scheduler.target_itl_ms == 40.0);
  CHECK(config.serve.engine.scheduler.max_step_time_ms == 2000.0);
  CHECK(config.serve.engine.scheduler.priority_aging_s == 1.5);
  CHECK(config.serve.engine.kv_cache.memory == std::int64_t{4} << 30);
  CHECK(config.serve.engine.kv_cache.dtype == KvDType::kBF16);
  CHECK_FALSE(config.serve.engine.kv_cache.enable_prefix_caching);
  CHECK(config.serve.engine.kv_cache.block_size == 32);
  CHECK(config.serve.backend.cpu.isa == "scalar");
  CHECK_FALSE(config.serve.backend.cpu.pin);
  CHECK(config.serve.engine.queue.max_queued_bytes == 10'000'000);
  CHECK(config.serve.engine.queue.max_queue_time_s == 2.0);
  CHECK(config.serve.server.drain.deadline.count() == 0);
  CHECK(config.log.format == "json");
  CHECK(loaded("model: {tool_format: Qwen3-Coder}").serve.model.tool_format == "Qwen3-Coder");
  CHECK(loaded("kv_cache: {host_tier_bytes: 1GiB}").serve.engine.kv_cache.host_tier_bytes == std::int64_t{1} << 30);
  CHECK(loaded("kv_cache: {dtype: i4}").serve.engine.kv_cache.dtype == KvDType::kI4);
  CHECK(loaded("kv_cache: {disk_tier_path: /var/kv}").serve.engine.kv_cache.disk_tier_path == "/var/kv");
  CHECK(loaded("model: {alias: [a, b]}").serve.model.alias == std::vector<std::string>{"a", "b"});
  CHECK(render_config(loaded("")) == render_config({}));
  CHECK(render_config(loaded("# nothing\nserver:\n")) == render_config({}));
}

TEST_CASE("API keys are read whole or refused by what is wrong with them", "[config]") {
  const std::string hash(64, 'a');
  const Config config =
      loaded("security:\n  keys:\n    - {name: alice, sha256: " + hash +
             ", requests_per_minute: 60, tokens_per_minute: 1000, max_concurrent: 4, max_context: 512}\n"
             "    - {name: root, env: ROOT_KEY, admin: true}\n  metrics: admin\n  cors_origins: '*'\n");
  const SecurityOptions& security = config.serve.server.security;
  REQUIRE(security.keys.size() == 2);
  CHECK(security.keys[0].name == "alice");
  CHECK(security.keys[0].sha256 == hash);
  CHECK(security.keys[0].quota.requests_per_minute == 60);
  CHECK(security.keys[0].quota.tokens_per_minute == 1000);
  CHECK(security.keys[0].quota.max_concurrent == 4);
  CHECK(security.keys[0].quota.max_context == 512);
  CHECK_FALSE(security.keys[0].admin);
  CHECK(security.keys[1].env == "ROOT_KEY");
  CHECK(security.keys[1].admin);
  CHECK(security.metrics == PageAccess::kAdmin);
  CHECK(config.serve.server.cors.origins == std::vector<std::string>{"*"});
  CHECK(render_config(loaded(render_config(config))) == render_config(config));

  const auto keys = [](const std::string& list) { return refusal("security:\n  keys: " + list + "\n"); };
  CHECK(keys("[{name: a, env: A, rpm: 3}]").find("does not know 'rpm'") != std::string::npos);
  CHECK(keys("[{name: a}]").find("needs one of 'sha256', 'env' and 'file' for 'a'") != std::string::npos);
  CHECK(keys("[{name: a, env: A, file: b}]").find("needs one of") != std::string::npos);
  CHECK(keys("[{env: A}]").find("needs a 'name'") != std::string::npos);
  CHECK(keys("[{name: 'a b', env: A}]").find("needs a 'name'") != std::string::npos);
  CHECK(keys("[{name: a, sha256: abc}]").find("64 hexadecimal digits") != std::string::npos);
  CHECK(keys("[{name: a, env: A}, {name: a, env: B}]").find("the name 'a' twice") != std::string::npos);
  CHECK(keys("[{name: a, env: A, max_concurrent: -1}]").find("at least 0 for 'max_concurrent'") != std::string::npos);
  CHECK(keys("alice").find("must be a list of mappings") != std::string::npos);

  Config flagged;
  set_config_value(flagged, "security.keys", {"name=alice,env=ALICE_KEY,max_concurrent=2"}, "--security.keys");
  REQUIRE(flagged.serve.server.security.keys.size() == 1);
  CHECK(flagged.serve.server.security.keys[0].env == "ALICE_KEY");
  CHECK(flagged.serve.server.security.keys[0].quota.max_concurrent == 2);
}

TEST_CASE("several models are read whole or refused by what is wrong with them", "[config]") {
  const Config config = loaded(R"(
models:
  - {name: org/big, path: /models/big.gguf, aliases: [gpt-4, other], kv_share: 3, max_model_len: 4096}
  - {name: small, path: /models/small, kv_memory: 64MiB, kv_dtype: i8, sleep_after: 5m, preload: false,
     max_num_seqs: 8, max_queued_requests: 20, max_queue_time: 30s, tool_format: hermes, packed_cache: /var/packed,
     packed_cache_bytes: 4GiB, draft_model: /models/tiny.gguf}
kv_cache: {memory: 4GiB, disk_tier_path: /var/kv}
)");
  check_config(config);
  const std::vector<HostedModelSpec> specs = model_specs(config.serve);
  REQUIRE(specs.size() == 2);
  CHECK(specs[0].name == "org/big");
  CHECK(specs[0].aliases == std::vector<std::string>{"gpt-4", "other"});
  CHECK(specs[0].kv_share == 3.0);
  CHECK(specs[0].kv_memory == 0);
  CHECK(specs[0].engine.scheduler.max_model_len == 4096);
  CHECK(specs[0].engine.kv_cache.disk_tier_path == "/var/kv/org_big");
  CHECK(specs[0].preload);
  CHECK(specs[1].kv_memory == std::int64_t{64} << 20);
  CHECK(specs[1].engine.kv_cache.memory == specs[1].kv_memory);
  CHECK(specs[1].engine.kv_cache.dtype == KvDType::kI8);
  CHECK(specs[1].engine.scheduler.max_num_seqs == 8);
  CHECK(specs[1].engine.queue.max_queued_requests == 20);
  CHECK(specs[1].engine.queue.max_queue_time_s == 30.0);
  CHECK(specs[1].sleep_after == std::chrono::minutes(5));
  CHECK(specs[1].model.packed_cache == "/var/packed");
  CHECK(specs[1].model.packed_cache_bytes == std::int64_t{4} << 30);
  CHECK(specs[0].model.packed_cache_bytes == kDefaultPackedBytes);
  CHECK(specs[1].model.draft_model == "/models/tiny.gguf");
  CHECK(specs[0].engine.speculation.method == SpeculationMethod::kNone);
  CHECK(specs[1].engine.speculation.method == SpeculationMethod::kDraftModel);
  CHECK_FALSE(specs[1].preload);
  CHECK(render_config(loaded(render_config(config))) == render_config(config));

  const auto models = [](const std::string& list) { return refusal("models: " + list + "\n"); };
  CHECK(models("[{name: a}]").find("needs a 'path' or 'hf' for 'a'") != std::string::npos);
  CHECK(models("[{path: a}]").find("needs a 'name'") != std::string::npos);
  CHECK(models("[{name: a, path: x, hf: o/n}]").find("has both 'path' and 'hf' for 'a'") != std::string::npos);
  CHECK(models("[{name: a, hf: n}]").find("needs OWNER/NAME[@REVISION][:QUANTISATION] for 'hf'") != std::string::npos);
  CHECK(loaded("models: [{name: a, hf: 'o/n:Q8_0'}]\n").serve.models.front().model.hf == "o/n:Q8_0");
  CHECK(models("[{name: 'a b', path: x}]").find("for 'name'") != std::string::npos);
  CHECK(models("[{name: a, path: x, alias: b}]").find("does not know 'alias'; did you mean 'aliases'") !=
        std::string::npos);
  CHECK(models("[{name: a, path: x}, {name: b, path: y, aliases: a}]").find("a name of 'b' twice") !=
        std::string::npos);
  CHECK(models("[{name: a, path: x, kv_share: 0}]").find("a number above 0 for 'kv_share'") != std::string::npos);
  CHECK(models("[{name: a, path: x, sleep_after: 5}]").find("a time such as") != std::string::npos);
  CHECK(models("[{name: a, path: x, preload: maybe}]").find("true or false for 'preload'") != std::string::npos);
  CHECK(models("[{name: a, path: x, preload: 'true'}]").find("true or false for 'preload'") != std::string::npos);
  CHECK(models("a").find("must be a list of mappings") != std::string::npos);

  const auto clash = [](const std::string& yaml) { check_config(loaded("models: [{name: a, path: x}]\n" + yaml)); };
  clash("");
  CHECK_THROWS_WITH(clash("model: {path: y}"), Catch::Contains("model.path and models exclude each other"));
  CHECK_THROWS_WITH(clash("model: {packed_cache: y}"), Catch::Contains("model.packed_cache and models exclude"));
  CHECK_THROWS_WITH(clash("model: {packed_cache_bytes: 1GiB}"), Catch::Contains("model.packed_cache_bytes and models"));
  CHECK_THROWS_WITH(clash("kv_cache: {num_blocks: 9}"), Catch::Contains("kv_cache.num_blocks is for one model"));

  Config flagged;
  set_config_value(flagged, "models", {"name=a,path=x", "name=b,path=y,preload=false"}, "--models");
  REQUIRE(flagged.serve.models.size() == 2);
  CHECK_FALSE(flagged.serve.models[1].preload);
}

TEST_CASE("two configurations differ by their keys, told without secrets", "[config]") {
  const std::string keys = "security: {keys: [{name: a, env: A}]}\n";
  CHECK(compare_configs({}, {}).empty());
  const auto changes =
      compare_configs(loaded("log: {level: info}\n"), loaded(keys + "log: {level: debug}\nserver: {port: 1}\n"));
  REQUIRE(changes.size() == 3);
  CHECK(changes[0].key == "server.port");
  CHECK(changes[0].needs_restart);
  CHECK(changes[0].after == "1");
  CHECK(changes[1].key == "security.keys");
  CHECK_FALSE(changes[1].needs_restart);
  CHECK(changes[1].before == changes[1].after);
  CHECK(changes[2].key == "log.level");
  CHECK(changes[2].before == "info");
  CHECK(changes[2].after == "debug");
}

TEST_CASE("what must change while serving can, what cannot is known", "[config]") {
  for (const char* path : {"security.keys", "security.cors_origins", "scheduler.key_weights",
                           "queue.max_queued_requests", "server.max_body_bytes", "log.level", "server.tls.certificate",
                           "model.alias", "model.chat_template", "models"}) {
    CAPTURE(path);
    REQUIRE(find_config_key(path) != nullptr);
    CHECK(find_config_key(path)->is_live);
  }
  for (const char* path : {"server.port", "server.threads", "kv_cache.block_size", "model.path", "backend.device",
                           "scheduler.max_num_seqs", "log.format", "tracing.endpoint"}) {
    CAPTURE(path);
    REQUIRE(find_config_key(path) != nullptr);
    CHECK_FALSE(find_config_key(path)->is_live);
  }
}

TEST_CASE("an unknown key is refused with file, line and the nearest key", "[config]") {
  CHECK(refusal("\n\nscheduler:\n  max_num_seq: 3\n") ==
        "quire.yaml:4: unknown key 'scheduler.max_num_seq'; did you mean 'scheduler.max_num_seqs'?");
  CHECK(refusal("schedular: {max_num_seqs: 3}") == "quire.yaml:1: unknown key 'schedular'; did you mean 'scheduler'?");
  // Keys that are right except for their section, like vLLM's flat options.
  CHECK(refusal("max_num_seqs: 3") ==
        "quire.yaml:1: unknown key 'max_num_seqs'; did you mean 'scheduler.max_num_seqs'?");
  CHECK(refusal("server:\n  isa: avx2\n") == "quire.yaml:2: unknown key 'server.isa'; did you mean 'backend.cpu.isa'?");
  CHECK(refusal("scheduler.max_num_seq: 3").find("did you mean 'scheduler.max_num_seqs'?") != std::string::npos);
  CHECK(refusal("backend: {cpu: {thread: 1}}").find("did you mean 'backend.cpu.threads'?") != std::string::npos);
  CHECK(refusal(std::string(100'000, 'x') + ": 1").size() < 300);
}

TEST_CASE("a value of the wrong type or out of range is refused with what would be right", "[config]") {
  CHECK(refusal("server:\n  port: 70000\n") == "quire.yaml:2: 'server.port' must be an integer from 0 to 65535");
  CHECK(refusal("server: {port: \"8080\"}") == "quire.yaml:1: 'server.port' must be an integer from 0 to 65535");
  CHECK(refusal("server: {port: 80.5}") == "quire.yaml:1: 'server.port' must be an integer from 0 to 65535");
  CHECK(refusal("server: {port: [80]}") == "quire.yaml:1: 'server.port' must be an integer from 0 to 65535");
  CHECK(refusal("server: {port: }") == "quire.yaml:1: 'server.port' must be an integer from 0 to 65535");
  CHECK(refusal("server: {host: {a: b}}") == "quire.yaml:1: 'server.host' must be text");
  CHECK(refusal("server: 5") == "quire.yaml:1: 'server' must be a mapping of keys, such as 'server.host'");
  CHECK(refusal("scheduler: {max_num_seqs: 0}") ==
        "quire.yaml:1: 'scheduler.max_num_seqs' must be an integer of at least 1");
  CHECK(refusal("scheduler: {max_num_seqs: 99999999999}") ==
        "quire.yaml:1: 'scheduler.max_num_seqs' must be an integer of at least 1");
  CHECK(refusal("scheduler: {policy: priorty}") ==
        "quire.yaml:1: 'scheduler.policy' must be one of fcfs, priority, fair; did you mean 'priority'?");
  CHECK(refusal("scheduler: {key_weights: {a: 0}}").find("numbers above 0") != std::string::npos);
  CHECK(refusal("kv_cache: {block_size: 24}") ==
        "quire.yaml:1: 'kv_cache.block_size' must be an integer from 16 to 1024 that is a multiple of 16");
  CHECK(refusal("kv_cache: {memory: 4 bananas}") ==
        "quire.yaml:1: 'kv_cache.memory' must be a size such as 512MiB or 4GiB");
  CHECK(refusal("kv_cache: {memory: -1}") == "quire.yaml:1: 'kv_cache.memory' must be a size such as 512MiB or 4GiB");
  CHECK(refusal("kv_cache: {memory: 99999999TiB}") ==
        "quire.yaml:1: 'kv_cache.memory' must be a size such as 512MiB or 4GiB");
  CHECK(refusal("kv_cache: {prefix_caching: yes}") == "quire.yaml:1: 'kv_cache.prefix_caching' must be true or false");
  CHECK(refusal("drain: {delay: 5}") == "quire.yaml:1: 'drain.delay' must be a time such as 500ms, 30s or 5m");
  CHECK(refusal("drain: {delay: 1e300h}") == "quire.yaml:1: 'drain.delay' must be a time such as 500ms, 30s or 5m");
  CHECK(refusal("model: {alias: [[a]]}") == "quire.yaml:1: 'model.alias' must be a name, or a list of names");
  CHECK(refusal("model: {tool_format: herms}") ==
        "quire.yaml:1: 'model.tool_format' must be empty, or the name of a format such as hermes or llama3_json; "
        "did you mean 'hermes'?");
  CHECK(refusal("log: {level: verbose}").starts_with("quire.yaml:1: 'log.level' must be one of trace, debug, info,"));
}

TEST_CASE("what YAML allows and a configuration should not hold is refused", "[config]") {
  CHECK(refusal("server: {port: 1}\nlog: {level: info}\nserver: {port: 2}\n") ==
        "quire.yaml:3: 'server' occurs twice, first in line 1");
  CHECK(refusal("server:\n  port: 1\n  port: 1\n") == "quire.yaml:3: 'port' occurs twice, first in line 2");
  CHECK(refusal("a: &x [1]\nb: *x\n") == "quire.yaml:1: anchors (&name) are not allowed");
  CHECK(refusal("server: &x {port: 1}") == "quire.yaml:1: anchors (&name) are not allowed");
  CHECK(refusal("model: {path: !!binary aGk=}") == "quire.yaml:1: tags (!type) are not allowed");
  CHECK(refusal("---\nserver:\n---\nlog:\n") == "quire.yaml:3: a second document: one is allowed");
  CHECK(refusal("- a\n") == "quire.yaml:1: the file is not a mapping of keys to values");
  CHECK(refusal("{[a]: 1}") == "quire.yaml:1: a key must be a plain name");
  CHECK(refusal("server: {port: 1\nlog: ]").starts_with("quire.yaml:"));
  CHECK(refusal("server:\n\tport: 1\n").starts_with("quire.yaml:2: "));
  CHECK(refusal("a: " + std::string(200, '[') + std::string(200, ']')) == "quire.yaml:1: nested too deeply");
  CHECK(refusal(std::string((1 << 20) + 1, '#')) == "quire.yaml: is larger than 1 MiB");
  std::string many = "model: {alias: [";
  for (int i = 0; i < 200'000; ++i)
    many += "a,";
  CHECK(refusal(many + "a]}") == "quire.yaml:1: too many values");
  // The billion laughs attack: each line repeats the line before ten times.
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before + "," + before + "]\n";
  }
  CHECK(refusal(bomb) == "quire.yaml:1: anchors (&name) are not allowed");
}

TEST_CASE("what excludes each other is refused", "[config]") {
  Config config = loaded("kv_cache: {num_blocks: 10}");
  CHECK_NOTHROW(check_config(config));
  load_config_text(config, "kv_cache: {memory: 1GiB}", "quire.yaml");
  CHECK_THROWS_WITH(check_config(config),
                    "kv_cache.num_blocks and kv_cache.memory exclude each other: set one of them to 0");
}

TEST_CASE("a file that cannot be read is refused by name", "[config]") {
  Config config;
  CHECK_THROWS_WITH(load_config_file(config, "/nonexistent/quire.yaml"),
                    "/nonexistent/quire.yaml: cannot be opened: No such file or directory");
  CHECK_THROWS_WITH(load_config_file(config, "/dev/null"), "/dev/null: is not a regular file, but a device");
}

TEST_CASE("a file that looks half written is no successor of one that was whole", "[config]") {
  const std::string whole =
      "security:\n  keys: [{name: a, env: A}]\n  metrics: key\nserver:\n  tls: {certificate: c, key: k}\nqueue:\n"
      "  max_queued_requests: 7\n";
  const auto refusal_of = [&](const std::string& before, const std::string& after) -> std::string {
    try {
      check_successor(loaded(before), loaded(after));
    } catch (const StartupError& error) {
      return error.what();
    }
    return {};
  };
  CHECK(refusal_of(whole, whole).empty());
  CHECK_THAT(refusal_of(whole, ""), Catch::StartsWith("quire.yaml: sets nothing any more"));
  CHECK_THAT(refusal_of(whole, "# soon\nsecurity:\n"), Catch::StartsWith("quire.yaml: sets nothing any more"));
  CHECK_THAT(refusal_of(whole, whole.substr(0, whole.size() - 1)), Catch::Contains("has no line break"));
  // If the file is cut between two lines, the missing protection is named.
  CHECK_THAT(refusal_of(whole, whole.substr(0, whole.find("server:"))), Catch::Contains("'server.tls.certificate'"));
  const std::string keys = "security:\n  keys: [{name: a, env: A}]\n";
  CHECK_THAT(refusal_of(keys + "  metrics: key\n", keys), Catch::Contains("write 'security.metrics: open'"));
  CHECK_THAT(refusal_of(keys, "queue: {max_queued_requests: 7}\n"), Catch::Contains("write 'security.keys: []'"));
  // Keys that only limit may be left out, and so may protection that is named in the message.
  CHECK(refusal_of(whole, whole.substr(0, whole.find("queue:"))).empty());
  CHECK(refusal_of("security: {metrics: key}\n", "security: {metrics: open}\n").empty());
  // A file whose last line never ended, and a daemon without a file.
  CHECK(refusal_of("queue: {max_queued_requests: 7}", "queue: {max_queued_requests: 8}").empty());
  CHECK(refusal_of("", "").empty());
}

TEST_CASE("keys name the module of the build that they configure", "[config]") {
  CHECK(left_out_config_keys().empty());  // the tests' build has all modules
  CHECK(find_left_out_config_key("batches.directory") == nullptr);
  const std::pair<const char*, Module> expected[] = {{"server.port", Module::kCore},
                                                     {"model.path", Module::kCore},
                                                     {"kv_cache.dtype", Module::kCore},
                                                     {"server.slots.directory", Module::kCore},
                                                     {"batches.directory", Module::kBatches},
                                                     {"kv_cache.shared.url", Module::kFleet},
                                                     {"kv_cache.events.topic", Module::kFleet},
                                                     {"shared_quotas.replicas", Module::kFleet},
                                                     {"model.hf", Module::kHub},
                                                     {"server.pull.enabled", Module::kHub},
                                                     {"media.memory", Module::kImages},
                                                     {"model.mmproj", Module::kImages},
                                                     {"tracing.endpoint", Module::kOtlp}};
  for (const auto& [path, module] : expected) {
    INFO(path);
    REQUIRE(find_config_key(path) != nullptr);
    CHECK(find_config_key(path)->module == module);
  }
  CHECK(
      left_out(Module::kHub) ==
      "needs the module 'hub', which this build leaves out: build with cmake -DQUIRE_MODULES=all, or with 'hub' in its "
      "list");
}

TEST_CASE("the reference page says what the table of keys holds", "[config][docs]") {
  // Update it with: quire-dev configuration > deploy/docs/configuration.md
  CHECK(test::read_file(test::source_folder() / "deploy/docs/configuration.md") == render_reference());
}

}  // namespace quire
