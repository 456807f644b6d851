// Adapters against the same change merged into the weights, and against themselves in every batch.
#include <catch2/catch.hpp>

#include "core/base/result.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/parts/adapter.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/adapters/adapter_files.h"
#include "tests/unit/model/hf/hf_directory.h"
#include "tests/unit/model/model_runner.h"

using namespace quire;
using namespace quire::test;

namespace {

// Runs alone, in chunks and beside rows of other adapters or none, on every level.
void check_rows_of_adapters(const std::string& shape, std::span<const std::string> isa_levels) {
  CAPTURE(shape);
  const TemporaryFolder folder;
  const auto file = write_model(shape, "Q8_0", folder / "model.gguf");
  const auto model = open_model(folder / "model.gguf");
  for (unsigned i = 0; i < 2; ++i)
    write_adapter(changes_of(file, i, 3 + 5 * i), text_of(*file, "general.architecture"),
                  folder / ("adapter" + std::to_string(i)));
  for (const std::string& isa : isa_levels) {
    INFO(isa);
    ModelRunner runner(*model, isa, KvDType::kF16);
    runner.model().allow_adapters(8);
    const std::vector<std::int32_t> ids[] = {tokens(70, 1), tokens(300, 2), tokens(33, 5), tokens(90, 9)};
    const std::vector<Logits> plain{runner.append_together({ids[0]})[0], runner.append_together({ids[1]})[0]};
    const auto first = runner.model().load_adapter(folder / "adapter0");
    const auto second = runner.model().load_adapter(folder / "adapter1");
    CHECK(first->content_key() != second->content_key());
    const std::vector<const Adapter*> together{nullptr, nullptr, first.get(), second.get()};
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = together; };
    const auto mixed = runner.append_together({ids[0], ids[1], ids[2], ids[3]});
    CHECK(mixed[0] == plain[0]);
    CHECK(mixed[1] == plain[1]);
    const Logits last = runner.append_together_for_last({ids[0], ids[1], ids[2], ids[3]});
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(last[i] == mixed[i].back());
    for (std::size_t i = 2; i < 4; ++i) {
      for (const std::size_t chunk : {1U, 16U, 64U}) {
        runner.reset();
        runner.edit = [&](StepArrays& arrays) { arrays.adapters = std::span(together).subspan(i, 1); };
        CHECK(runner.append_chunked(ids[i], chunk) == mixed[i]);
      }
    }
  }
}

}  // namespace

TEST_CASE("An adapter computes what its changes merged into the weights would", "[model][adapter]") {
  const std::string shape = GENERATE(from_range(synth_shape_names()));
  if (!shape.starts_with("tiny-")) return;
  CAPTURE(shape);
  const TemporaryFolder folder;
  const auto file = write_model(shape, "F32", folder / "model.gguf");
  const std::vector<Change> changes = changes_of(file, 7);
  write_adapter(changes, text_of(*file, "general.architecture"), folder / "adapter.gguf");
  write_merged(folder / "model.gguf", changes, folder / "merged.gguf");
  const auto ids = tokens(40, 3);
  const auto model = open_model(folder / "model.gguf", false);
  if (!model->info().has_head) return;
  ModelRunner plain(*model, "scalar");
  ModelRunner merged(*open_model(folder / "merged.gguf", false), "scalar");
  plain.model().allow_adapters(16);
  const Logits without = plain.append(ids);
  plain.reset();
  const auto adapter = plain.model().load_adapter(folder / "adapter.gguf");
  const std::vector<const Adapter*> adapters{adapter.get()};
  plain.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
  const Logits wanted = merged.append(ids);
  const Logits got = plain.append(ids);
  CHECK(difference(got, wanted) < 1e-4);
  CHECK(difference(without, wanted) > 1e-2);
}

TEST_CASE("Rows with an adapter have the same bits alone, in chunks and beside other adapters; others lose none",
          "[model][adapter][invariance]") {
  check_rows_of_adapters("tiny-qwen3", std::vector{best_isa_level()});
}

TEST_CASE("Rows with an adapter, of experts and chunks too, have the same bits on every level",
          "[model][adapter][invariance][.long]") {
  check_rows_of_adapters(GENERATE("tiny-qwen3", "tiny-qwen3moe", "tiny-llama4"), supported_isa_levels());
}

TEST_CASE("Neighbours with one adapter are multiplied together, and rows without one cost nothing more",
          "[model][adapter]") {
  const TemporaryFolder folder;
  const auto file = write_model("tiny-qwen3", "Q8_0", folder / "model.gguf");
  const std::vector<Change> changes = changes_of(file, 0, 4);
  for (int i = 0; i < 16; ++i)
    write_adapter(changes_of(file, static_cast<unsigned>(i), 4), "qwen3", folder / std::to_string(i));
  ModelRunner runner(*open_model(folder / "model.gguf", false), "scalar");
  runner.model().allow_adapters(8);
  std::vector<std::shared_ptr<const Adapter>> loaded;
  for (int i = 0; i < 16; ++i)
    loaded.push_back(runner.model().load_adapter(folder / std::to_string(i)));
  // Counts the products of a step of 32 sequences of one token; the first `num_with` have adapters.
  const auto products = [&](std::size_t num_with, std::size_t num_adapters) {
    std::vector<const Adapter*> adapters(32);
    for (std::size_t i = 0; i < num_with; ++i)
      adapters[i] = loaded[i * num_adapters / 32].get();
    runner.reset();
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
    runner.take_recording();
    runner.append_together(std::vector<std::vector<std::int32_t>>(32, {5}));
    return std::ssize(runner.take_recording());
  };
  const std::int64_t plain = products(0, 1);
  std::int64_t of_layers = 0;  // changed products of layers; the head's run per row
  for (const Change& change : changes)
    of_layers += change.name.starts_with("blk.") ? 1 : 0;
  const std::int64_t of_head = 2 * (std::ssize(changes) - of_layers);
  CHECK(products(32, 1) == plain + 2 * of_layers + 32 * of_head);
  CHECK(products(8, 1) == plain + 2 * of_layers + 8 * of_head);
  CHECK(products(32, 16) == plain + 16 * 2 * of_layers + 32 * of_head);
}

TEST_CASE("A PEFT directory has the bits of the same adapter as a GGUF file", "[model][adapter]") {
  const std::string shape = GENERATE("tiny-llama", "tiny-qwen3");
  CAPTURE(shape);
  const TemporaryFolder folder;
  const auto file = write_model(shape, "Q8_0", folder / "model.gguf");
  const std::string architecture = text_of(*file, "general.architecture");
  std::vector<Change> changes = changes_of(file, 3, 4);
  std::erase_if(changes, [](const Change& change) { return change.name == "output.weight"; });
  write_adapter(changes, architecture, folder / "adapter.gguf");
  write_peft(in_halves(changes, *file), folder / "peft");
  const auto model = open_model(folder / "model.gguf", false);
  ModelRunner runner(*model, "scalar");
  runner.model().allow_adapters(16);
  const auto logits_with = [&](const std::filesystem::path& path) {
    const auto adapter = runner.model().load_adapter(path);
    const std::vector<const Adapter*> adapters{adapter.get()};
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
    runner.reset();
    return runner.append(tokens(20, 3));
  };
  CHECK(logits_with(folder / "peft") == logits_with(folder / "adapter.gguf"));
}

TEST_CASE("A Hugging Face directory with an adapter of either form computes what its GGUF conversion does",
          "[model][adapter][hf]") {
  const std::string shape = GENERATE("tiny-llama", "tiny-qwen2", "tiny-qwen3");
  CAPTURE(shape);
  const TemporaryFolder folder;
  const auto file = write_model(shape, "F32", folder / "model.gguf");
  write_hf_directory(folder / "model.gguf", find_synth_shape(shape)->config, {}, folder / "hf");
  const std::string architecture = text_of(*file, "general.architecture");
  std::vector<Change> changes = changes_of(file, 3, 4);
  std::erase_if(changes, [](const Change& change) { return change.name == "output.weight"; });
  write_adapter(changes, architecture, folder / "adapter.gguf");
  write_peft(in_halves(changes, *file), folder / "peft");
  const auto logits_with = [&](const char* model, const char* name) {
    ModelRunner runner(*open_model(folder / model, false), "scalar");
    runner.model().allow_adapters(16);
    const auto adapter = runner.model().load_adapter(folder / name);
    const std::vector<const Adapter*> adapters{adapter.get()};
    runner.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
    return runner.append(tokens(20, 3));
  };
  const Logits wanted = logits_with("model.gguf", "adapter.gguf");
  CHECK(difference(logits_with("hf", "peft"), wanted) < 1e-5);
  CHECK(difference(logits_with("hf", "adapter.gguf"), wanted) < 1e-5);
}

TEST_CASE("An adapter that does not fit the model is refused by name", "[model][adapter]") {
  const TemporaryFolder folder;
  const auto file = write_model("tiny-qwen3", "F32", folder / "model.gguf");
  ModelRunner runner(*open_model(folder / "model.gguf"), "scalar");
  const auto refusal = [&](const std::vector<Change>& changes, const std::string& architecture) -> std::string {
    write_adapter(changes, architecture, folder / "adapter.gguf");
    try {
      runner.model().load_adapter(folder / "adapter.gguf");
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  };
  const std::vector<Change> good = changes_of(file, 1);
  CHECK_THAT(refusal(good, "qwen3"), Catch::Contains("not allowed for"));
  runner.model().allow_adapters(9);
  CHECK(refusal(good, "qwen3").empty());
  CHECK_THAT(refusal(good, "llama"), Catch::Contains("for 'llama'"));
  std::vector<Change> bad = good;
  bad[0].name = "blk.99.attn_q.weight";
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("'blk.99.attn_q.weight' is no product"));
  bad[0].name = "token_embd.weight";
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("'token_embd.weight' is no product"));
  bad = changes_of(file, 1, 10);
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("rank 10; at most 9"));
  bad = good;
  bad[0].inputs *= 2;
  bad[0].rank = 1;
  bad[0].down.resize(static_cast<std::size_t>(bad[0].inputs));
  bad[0].up.resize(static_cast<std::size_t>(bad[0].outputs));
  CHECK_THAT(refusal(bad, "qwen3"), Catch::Contains("do not fit"));
  CHECK_THROWS_WITH(runner.model().load_adapter(folder / "model.gguf"), Catch::Contains("no LoRA adapter"));
}
