#include "config/flags.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "config/foreign_flags.h"
#include "core/base/result.h"

namespace quire {
namespace {

Config resolved(std::vector<std::string> arguments) {
  CLI::App app("test");
  CLI::App* serve = app.add_subcommand("serve");
  ConfigFlags flags(*serve);
  arguments = ConfigFlags::translated(arguments).words;
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
  } catch (const CLI::ParseError& error) {  // a flag without its value
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

TEST_CASE("the model may stand without a flag", "[config]") {
  CHECK(resolved({"m.gguf", "--port", "1"}).serve.model.path == "m.gguf");
  CHECK(flag_refusal({"a.gguf", "--model", "b.gguf"}) == "the model is given twice: as 'a.gguf' and by --model.path");
  CHECK(flag_refusal({"a.gguf", "b.gguf"}).starts_with("unexpected argument 'b.gguf'"));
}

TEST_CASE("llama-server's and vLLM's flags are taken where they mean the same", "[config]") {
  const Config config = resolved({"-m", "m.gguf", "-c", "4096", "-t", "2", "-a", "a", "--parallel", "8", "-b", "512"});
  CHECK(config.serve.model.path == "m.gguf");
  CHECK(config.serve.engine.scheduler.max_model_len == 4096);
  CHECK(config.serve.backend.cpu.threads == 2);
  CHECK(config.serve.model.alias == std::vector<std::string>{"a"});
  CHECK(config.serve.engine.scheduler.max_num_seqs == 8);
  CHECK(config.serve.engine.scheduler.max_num_batched_tokens == 512);
  CHECK(resolved({"--ctx-size", "64", "m.gguf"}).serve.engine.scheduler.max_model_len == 64);
}

TEST_CASE("a draft model drafts unless another method is asked for", "[config]") {
  const auto method = [](std::vector<std::string> arguments) {
    return model_specs(resolved(std::move(arguments)).serve).front().engine.speculation.method;
  };
  CHECK(resolved({"m.gguf", "--model-draft", "s.gguf"}).serve.model.draft_model == "s.gguf");
  CHECK(resolved({"m.gguf", "--speculation.draft-model", "s.gguf"}).serve.model.draft_model == "s.gguf");
  CHECK(method({"m.gguf", "--model-draft", "s.gguf"}) == SpeculationMethod::kDraftModel);
  CHECK(method({"m.gguf", "--model-draft", "s.gguf", "--speculation", "prompt_lookup"}) ==
        SpeculationMethod::kPromptLookup);
  CHECK(method({"m.gguf"}) == SpeculationMethod::kNone);
  CHECK(flag_refusal({"m.gguf", "--speculation", "draft"}).find("without speculation.draft_model") !=
        std::string::npos);
}

TEST_CASE("vLLM's object for drafting stands for the keys of speculation", "[config]") {
  const auto speculation = [](const std::string& json) {
    return resolved({"m.gguf", "--speculative-config", json}).serve.engine.speculation;
  };
  CHECK(speculation(R"({"method": "ngram", "num_speculative_tokens": 4})") ==
        SpeculationOptions{SpeculationMethod::kPromptLookup, 4});
  CHECK(speculation(R"({"method": "mtp"})") == SpeculationOptions{SpeculationMethod::kNextTokens, 8});
  CHECK(speculation(R"({"method": "none"})").method == SpeculationMethod::kNone);
  for (const char* json : {R"({"method": "draft_model", "model": "s.gguf", "num_speculative_tokens": 3})",
                           R"({"model": "s.gguf", "num_speculative_tokens": 3})"}) {
    CHECK(speculation(json) == SpeculationOptions{SpeculationMethod::kDraftModel, 3});
    CHECK(resolved({"m.gguf", std::string("--speculative-config=") + json}).serve.model.draft_model == "s.gguf");
  }
}

TEST_CASE("what Quire does not have of vLLM's object for drafting is refused in one line", "[config]") {
  const auto refusal = [](const std::string& json) { return flag_refusal({"m.gguf", "--speculative-config", json}); };
  const std::string where = "--speculative-config: ";
  const std::string methods = "one of ngram, draft_model, mtp";
  for (const char* no_object : {"ngram", "[1]", R"({"method")", "null"})
    CHECK(refusal(no_object).starts_with(where + "takes a JSON object such as '{"));
  CHECK(refusal("{}") == where + "'method' is missing: " + methods);
  CHECK(refusal(R"({"method": 1})") == where + "'method' is not a text");
  CHECK(refusal(R"({"method": "eagle3", "num_speculative_tokens": 2})") ==
        where + "the method 'eagle3' is not supported: " + methods);
  CHECK(refusal(R"({"method": "ngram", "model": "s.gguf"})") == where + "'model' is for the method draft_model");
  CHECK(refusal(R"({"method": "ngram", "num_speculative_token": 2})") ==
        where + "unknown key 'num_speculative_token'; did you mean 'num_speculative_tokens'?");
  CHECK(refusal(R"({"method": "ngram", "xyz": 2})") ==
        where + "unknown key 'xyz'; there are 'method', 'model' and 'num_speculative_tokens'");
  CHECK(refusal(R"({"method": "ngram", "prompt_lookup_max": 4})") ==
        where + "leave out 'prompt_lookup_max': the longest match is always taken");
  CHECK(refusal(R"({"method": "ngram", "num_speculative_tokens": 2.5})") ==
        where + "'num_speculative_tokens' is not an integer");
  CHECK(refusal(R"({"method": "ngram", "num_speculative_tokens": 99})") ==
        where + "'speculation.max_tokens' must be an integer from 1 to 32");
  CHECK(refusal(R"({"method": "draft_model"})").find("without speculation.draft_model") != std::string::npos);
  CHECK(flag_refusal({"m.gguf", "--speculation", "mtp", "--speculative-config", R"({"method": "mtp"})"})
            .starts_with("--speculative-config and --speculation"));
}

TEST_CASE("flags that Quire does not have are answered with the setting to use, all at once", "[config]") {
  CHECK(flag_refusal({"--gpu-memory-utilization=0.9"}) ==
        "option '--gpu-memory-utilization' is another server's: use --kv-cache-memory");
  CHECK(flag_refusal({"--lora", "a", "--port", "1", "--max-loras", "4"}) ==
        "option '--lora' is another server's: use --adapters NAME=PATH; requests select the adapter by NAME as their "
        "model; "
        "option '--max-loras' is another server's: use --adapter-memory");
  CHECK(flag_refusal({"--frobnicate"}) == "unknown option '--frobnicate'; 'quire serve --help' lists all");
  CHECK(
      flag_refusal({"--frobnicate", "3", "--prot=1"}) ==
      "unknown option '--frobnicate'; 'quire serve --help' lists all; unknown option '--prot'; did you mean '--port'?");
  for (const ForeignFlag& flag : foreign_flags()) {
    if (flag.use != ForeignUse::kRefused) continue;
    CAPTURE(flag.name);
    CHECK(flag_refusal({std::string(flag.name)}).starts_with("option '" + std::string(flag.name) + "' is another"));
    // The advised flag exists.
    const std::size_t use = flag.text.find("--");
    if (use == std::string_view::npos) continue;
    const std::string advised(flag.text.substr(use, flag.text.find_first_of(" ;,", use) - use));
    CHECK(flag_refusal({advised}).find("unknown option") == std::string::npos);
  }
}

TEST_CASE("flags of other servers that change nothing here are left out, with their values", "[config]") {
  const OwnWords own = ConfigFlags::translated(std::vector<std::string>{
      "serve", "-m", "m.gguf", "-ngl", "99", "--jinja", "-fa", "on", "-fa", "--port", "9", "--dtype=auto", "--numa",
      "distribute", "-np", "4", "--no-enable-prefix-caching", "--uds=/run/q"});
  CHECK(own.words == std::vector<std::string>{"serve", "-m", "m.gguf", "--port", "9", "--max-num-seqs", "4",
                                              "--kv-cache.prefix-caching=false", "--server.unix-socket=/run/q"});
  REQUIRE(own.ignored.size() == 6);
  CHECK(own.ignored[0] == "-ngl: the whole model is on one device, which --device chooses");
  CHECK(own.ignored[2] == "-fa: always on");
  for (const ForeignFlag& flag : foreign_flags()) {
    if (flag.use != ForeignUse::kRenamed) continue;
    CAPTURE(flag.name);
    CHECK(flag_refusal({std::string(flag.text)}).find("unknown option") == std::string::npos);
  }
}

TEST_CASE("usual command lines of other servers start", "[config]") {
  const Config llama =
      resolved({"-m",      "m.gguf", "-c",      "4096",   "-ngl", "999", "-fa", "auto", "-np", "8",
                "--jinja", "--host", "0.0.0.0", "--port", "8081", "-b",  "512", "-ub",  "512", "--no-mmap"});
  CHECK(llama.serve.engine.scheduler.max_num_seqs == 8);
  CHECK(llama.serve.server.port == 8081);
  const Config vllm = resolved({"m", "--served-model-name", "x", "--max-model-len", "4096", "--dtype", "bfloat16",
                                "--enable-prefix-caching", "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
                                "-tp", "2", "--trust-remote-code", "--max-num-seqs", "16"});
  CHECK(vllm.serve.engine.scheduler.max_num_seqs == 16);
  CHECK(vllm.serve.model.path == "m");
}

TEST_CASE("the limit of images is read in each of vLLM's forms", "[config]") {
  const auto limit = [](const std::vector<std::string>& flags) {
    return resolved(flags).serve.server.media.max_per_request;
  };
  CHECK(limit({}) == 100);
  CHECK(limit({"--limit-mm-per-prompt", "3"}) == 3);
  CHECK(limit({"--limit-mm-per-prompt", "image=5,video=0"}) == 5);
  CHECK(limit({"--limit-mm-per-prompt", R"({"image":0,"video":0})"}) == 0);
  CHECK(limit({"--limit-mm-per-prompt", R"({"image": {"count": 7, "width": 512}})"}) == 7);
  CHECK(limit({"--limit-mm-per-prompt.image=2", "--limit-mm-per-prompt.video", "1"}) == 2);
  CHECK(limit({"--media.max-per-request", "4"}) == 4);
  CHECK(flag_refusal({"--limit-mm-per-prompt", R"({"video": 1})"}).find("must be an integer") != std::string::npos);
}

TEST_CASE("a variable sets each key, and a flag wins over it", "[config]") {
  ::setenv("QUIRE_SERVER_PORT", "7001", 1);
  ::setenv("QUIRE_SCHEDULER_MAX_NUM_SEQS", "3", 1);
  CHECK(resolved({}).serve.server.port == 7001);
  CHECK(resolved({"--port", "7002"}).serve.server.port == 7002);
  CHECK(resolved({}).serve.engine.scheduler.max_num_seqs == 3);
  ::setenv("QUIRE_SERVER_PORT", "x", 1);
  CHECK(flag_refusal({}) == "QUIRE_SERVER_PORT: 'server.port' must be an integer from 0 to 65535");
  CHECK(resolved({"--port", "7002"}).serve.server.port == 7002);
  ::unsetenv("QUIRE_SERVER_PORT");
  ::unsetenv("QUIRE_SCHEDULER_MAX_NUM_SEQS");
}

TEST_CASE("an API key on the command line is kept as its hash", "[config]") {
  const Config config = resolved({"--api-key", "secret", "--api-key=other"});
  const auto& keys = config.serve.server.security.keys;
  REQUIRE(keys.size() == 2);
  CHECK(keys[0].name == "api-key-1");
  CHECK(keys[0].sha256 == "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b");
  CHECK(flag_refusal({"--api-key", ""}) == "--api-key: the key is empty");
}

TEST_CASE("a bad flag is refused with what would be right", "[config]") {
  CHECK(flag_refusal({"--port", "x"}) == "--server.port: 'server.port' must be an integer from 0 to 65535");
  CHECK(flag_refusal({"--prot", "1"}) == "unknown option '--prot'; did you mean '--port'?");
  CHECK(flag_refusal({"--scheduler.max_num_seqs", "1"}) ==
        "unknown option '--scheduler.max_num_seqs'; did you mean '--scheduler.max-num-seqs'?");
  CHECK(flag_refusal({"--num-blocks", "3", "--kv-cache.memory", "1GiB"}).find("exclude each other") !=
        std::string::npos);
  CHECK(flag_refusal({"--config", "/nonexistent.yaml"}) ==
        "/nonexistent.yaml: cannot be opened: No such file or directory");
}

}  // namespace quire
