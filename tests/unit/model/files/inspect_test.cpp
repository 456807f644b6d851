#include "core/model/tools/inspect.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "kernels/registry.h"
#include "tests/support/material.h"

using Catch::Contains;
using namespace quire;

namespace {

std::string inspect(const std::filesystem::path& path, std::uint64_t available,
                    const InspectOptions& shown = {true, true}) {
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  return inspect_model(path, *backend, {}, {.max_num_seqs = 8}, {.available = available, .limited_by = "the machine"},
                       shown);
}

}  // namespace

TEST_CASE("inspect shows metadata, tensors and the plan of a GGUF file", "[inspect]") {
  QUIRE_REQUIRE_MATERIAL(path, "weights/stories260K-gguf/stories260K.gguf");
  const std::string text = inspect(path, std::uint64_t{4} << 30);
  CHECK_THAT(text, Contains("GGUF v3") && Contains("general.architecture = \"llama\""));
  CHECK_THAT(text, Contains("llama.block_count = 5") && Contains("... 512 in all]"));
  CHECK_THAT(text, Contains("blk.4.ffn_down.weight") && Contains("[172, 64]"));
  CHECK_THAT(text, Contains("memory plan on cpu/scalar:") && Contains("requests of 2048 tokens"));
  CHECK_THAT(inspect(path, 1 << 20), Contains("cannot be served") && Contains("does not fit"));
}

TEST_CASE("inspect shows what each group of layers keeps of a sequence", "[inspect]") {
  QUIRE_REQUIRE_MATERIAL(folder, "architectures/given");
  const auto groups = [&](const std::string& family) { return inspect(folder / family / "model.gguf", 4ULL << 30); };
  CHECK_THAT(groups("gemma3"), Contains("layers keep K and V of the last 16 tokens") && Contains("of all tokens"));
  CHECK_THAT(groups("deepseek2"), Contains("layers keep one row of all tokens"));
  CHECK_THAT(groups("qwen35"), Contains("layers keep a state") && Contains("layers keep K and V of all tokens"));
}

TEST_CASE("inspect shows a Hugging Face directory", "[inspect]") {
  QUIRE_REQUIRE_MATERIAL(path, "weights/TinyStories-656K-hf");
  const std::string text = inspect(path, std::uint64_t{4} << 30);
  CHECK_THAT(text, Contains("hidden_size = 128") && Contains("model.layers.1.mlp.down_proj.weight"));
  CHECK_THAT(text, Contains("0.7 million parameters, mostly F32") && Contains("memory plan on"));
}

TEST_CASE("inspect says why a vocabulary-only file cannot be served", "[inspect]") {
  QUIRE_REQUIRE_MATERIAL(path, "tokenizers/llamacpp-vocab/ggml-vocab-llama-spm.gguf");
  CHECK_THAT(inspect(path, std::uint64_t{4} << 30), Contains("tensors: 0") && Contains("cannot be served"));
}

TEST_CASE("inspect shows a tower, alone and beside its model", "[inspect]") {
  QUIRE_REQUIRE_MATERIAL(family, "vision/given/qwen3vl");
  const auto path = family / "mmproj.gguf";
  const std::string text = inspect(path, std::uint64_t{4} << 30, {});
  CHECK_THAT(text,
             Contains("tower: Qwen3-VL (projector qwen3vl_merger), 4 blocks, width 32, 2 heads, feed-forward 40"));
  CHECK_THAT(text,
             Contains("patches of 16 x 16 pixels, 4 to a row; rows for a text model of hidden size 64, 2 deepstack"));
  CHECK_THAT(text, Contains("from 65536 to 16777216 pixels, sides are multiples of 32"));
  CHECK_THAT(text, Contains("1920 x 1080: 2040") && Contains("memory: weights") && Contains("--mmproj"));
  CHECK_THAT(text, !Contains("cannot be served"));
  CHECK_THAT(inspect(family / "text.gguf", std::uint64_t{4} << 30, {}),
             Contains("reads images by") && Contains("Qwen3-VL"));
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const auto report =
      nlohmann::json::parse(inspect_model_as_json(path, *backend, {}, {}, {.available = 1 << 30, .limited_by = "x"}));
  CHECK(report["tower"]["tokens"]["224x224"] == 64);
  CHECK(report["tower"]["num_deepstack"] == 2);
  CHECK(report["tensors"].size() > 40);
}

TEST_CASE("inspect plans for a GPU of any memory", "[inspect]") {
  const auto path = test::source_folder() / "deploy/demo-model/quire-demo.gguf";
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const auto plan = [&](std::uint64_t bytes) {
    const MachineMemory gpu = planned_gpu(bytes);
    return inspect_model(path, *backend, {}, {.max_num_seqs = 8}, gpu, {.device = gpu.limited_by});
  };
  CHECK_THAT(plan(std::uint64_t{24} << 30),
             Contains("memory plan on a GPU of 24.0 GiB:") && Contains("of 21.6 GiB that a GPU of 24.0 GiB has left"));
  CHECK_THAT(plan(std::uint64_t{64} << 20),
             Contains("cannot be served") && Contains("a GPU of 64.0 MiB has 57.6 MiB left"));
  const MachineMemory gpu = planned_gpu(std::uint64_t{24} << 30);
  const auto shown =
      nlohmann::json::parse(inspect_model_as_json(path, *backend, {}, {.max_num_seqs = 8}, gpu, {}, gpu.limited_by));
  CHECK(shown.at("plan").at("backend") == "a GPU of 24.0 GiB");
  CHECK(shown.at("plan").at("available_bytes") == gpu.available);
  CHECK_FALSE(shown.contains("identity"));  // the backend is not on this machine
}

TEST_CASE("inspect is brief where nothing more is asked for", "[inspect]") {
  const auto path = test::source_folder() / "deploy/demo-model/quire-demo.gguf";
  const std::string text = inspect(path, std::uint64_t{4} << 30, {});
  CHECK_THAT(text, Contains("tensors: 39 (F32 9: ") && Contains("memory plan on cpu/scalar:"));
  CHECK_THAT(text, Contains("\nidentity: "));
  CHECK_THAT(text, !Contains("blk.0") && !Contains("tokenizer.ggml"));
  CHECK(std::count(text.begin(), text.end(), '\n') < 15);
}

TEST_CASE("inspect's JSON has metadata, tensors, model and plan, or the refusal", "[inspect]") {
  const auto path = test::source_folder() / "deploy/demo-model/quire-demo.gguf";
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  const auto inspected = [&](std::uint64_t available) {
    return nlohmann::json::parse(
        inspect_model_as_json(path, *backend, {}, {.max_num_seqs = 8}, {.available = available, .limited_by = "test"}));
  };
  const auto document = inspected(std::uint64_t{4} << 30);
  CHECK(document["metadata"]["general.architecture"] == "llama");
  CHECK(document["metadata"]["tokenizer.ggml.tokens"] == nlohmann::json{{"num_elements", 3072}});
  CHECK(document["tensors"].size() == 39);
  CHECK(document["model"]["max_context"] == 2048);
  CHECK(document["plan"]["kv_tokens"] > 0);
  CHECK(document["identity"].get<std::string>().size() == 32);
  CHECK(inspected(std::uint64_t{8} << 30)["identity"] == document["identity"]);
  CHECK(inspected(1)["refusal"].get<std::string>().find("does not fit") != std::string::npos);
}
