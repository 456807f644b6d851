#include <atomic>
#include <catch2/catch.hpp>

#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_runner.h"

using namespace quire;
using namespace quire::test;

namespace {

std::shared_ptr<const LoadedModel> small_model(const TemporaryFolder& folder, const std::string& types) {
  SynthSpec spec = find_synth_shape("tiny-qwen3").value();
  spec.config.num_layers = 1;
  spec.types = find_synth_types(types).value();
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  return open_model(folder / "model.gguf");
}

std::vector<std::int32_t> tokens_from(std::int32_t count, std::int32_t first) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < count; ++i)
    ids.push_back((first + i * 37) % 380);
  return ids;
}

std::vector<std::size_t> rows_of(const Recording& products) {
  std::vector<std::size_t> rows;
  for (const auto& product : products)
    rows.push_back(product.size());
  return rows;
}

}  // namespace

TEST_CASE("Logits are the same bits however a prompt is cut into steps", "[model][invariance]") {
  const TemporaryFolder folder;
  const auto model = small_model(folder, "Q8_0");
  const auto ids = tokens_from(70, 3);
  for (const std::string& isa : supported_isa_levels()) {
    INFO(isa);
    ModelRunner runner(*model, isa, KvDType::kF16);
    const Logits whole = runner.append(ids);
    for (const std::size_t chunk : {1U, 7U, 16U, 64U}) {
      runner.reset();
      CHECK(runner.append_chunked(ids, chunk) == whole);
    }
  }
}

TEST_CASE("A step longer than a slice gives the same bits, for every sequence in it", "[model][invariance]") {
  const TemporaryFolder folder;
  const auto model = small_model(folder, "Q4_K");
  ModelRunner runner(*model, "scalar", KvDType::kF16);
  // The first slice of 512 rows ends within the second sequence, the second one within the third.
  const std::vector<std::vector<std::int32_t>> sequences{tokens_from(200, 1), tokens_from(600, 2), tokens_from(300, 5)};
  const std::vector<Logits> together = runner.append_together(sequences);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    runner.reset();
    CHECK(runner.append_chunked(sequences[i], 100) == together[i]);
  }
}

TEST_CASE("The head and the last feed-forward multiply the rows whose logits are wanted, and no others",
          "[model][invariance]") {
  const TemporaryFolder folder;
  const auto model = small_model(folder, "Q8_0");
  ModelRunner runner(*model, "scalar");
  const auto ids = tokens_from(600, 4);  // more than a slice
  const std::vector<float> last = runner.append_for_last(ids);
  // Q, K, V and attention's result of each slice; then gate and up, down, and the head.
  CHECK(rows_of(runner.take_recording()) == std::vector<std::size_t>{512, 512, 88, 88, 1, 1, 1});
  runner.reset();
  CHECK(runner.append(ids).back() == last);
  CHECK(rows_of(runner.take_recording()) == std::vector<std::size_t>{512, 512, 512, 512, 88, 88, 88, 88, 600});
}

TEST_CASE("Wanted rows have the same bits whatever else is wanted, and leave the same behind, in every family",
          "[model][invariance][families]") {
  std::size_t num_families = 0;
  for (const std::string& name : family_shape_names()) {
    if (!name.starts_with("tiny-")) continue;
    INFO(name);
    SynthSpec spec = find_synth_shape(name).value();
    spec.types = find_synth_types("F32").value();
    const TemporaryFolder folder;
    write_synthetic_gguf(spec, folder / "model.gguf", {});
    const auto model = open_model(folder / "model.gguf");
    ModelRunner runner(*model, kVectorIsa);
    const bool has_head = runner.model().has_head();
    const bool is_causal = runner.model().is_causal();
    const auto ids = tokens_from(40, 3);
    const auto compute = [&](std::span<const std::int32_t> tokens) {
      return has_head ? runner.append(tokens) : runner.append_hidden(tokens);
    };
    const Logits all = compute(ids);
    const Logits next = is_causal ? compute(tokens_from(3, 8)) : Logits{};
    // Slices of 16: some rows of the first and last are wanted, none of the second.
    const std::vector<std::int32_t> wanted{0, 3, 4, 39};
    runner.reset();
    runner.edit = [&](StepArrays& arrays) {
      arrays.slice_rows = 16;
      (has_head ? arrays.logit_rows : arrays.hidden_rows) = wanted;
    };
    const Logits some = compute(ids);
    REQUIRE(some.size() == wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i)
      CHECK(some[i] == all[static_cast<std::size_t>(wanted[i])]);
    runner.edit = {};
    if (is_causal) CHECK(compute(tokens_from(3, 8)) == next);
    ++num_families;
  }
  CHECK(num_families > 50);
}

TEST_CASE("An interrupted pass ends after a slice, and what it computed has the same bits", "[model][invariance]") {
  const TemporaryFolder folder;
  const auto model = small_model(folder, "Q8_0");
  ModelRunner runner(*model, "scalar");
  const auto ids = tokens_from(70, 3);
  const Logits whole = runner.append(ids);
  runner.reset();
  const std::atomic<bool> interrupt = true;
  runner.edit = [&](StepArrays& arrays) {
    arrays.slice_rows = 32;
    arrays.interrupt = &interrupt;
  };
  CHECK(runner.append(ids) == Logits(whole.begin(), whole.begin() + 32));
}

TEST_CASE("A pass that an arrival cuts counts whole slices, and what it computed again has the same bits",
          "[model][invariance]") {
  const TemporaryFolder folder;
  const auto model = small_model(folder, "Q8_0");
  ModelRunner runner(*model, "scalar");
  const auto ids = tokens_from(70, 3);
  const Logits whole = runner.append(ids);
  runner.reset();
  std::atomic<bool> interrupt = true;
  runner.edit = [&](StepArrays& arrays) {
    arrays.slice_rows = 32;
    arrays.interrupt = &interrupt;
    arrays.cuts_slices = true;
  };
  CHECK(runner.append(ids).empty());
  interrupt = false;
  runner.reset();
  CHECK(runner.append(ids) == whole);
}

TEST_CASE("Rows that carry embeddings compute what rows with those tokens compute", "[model][invariance]") {
  const TemporaryFolder folder;
  const auto model = small_model(folder, "Q8_0");
  ModelRunner runner(*model, "scalar");
  auto ids = tokens_from(40, 3);
  const Logits expected = runner.append(ids);
  std::vector<float> embeddings;
  const std::vector<std::int32_t> rows{1, 2, 17, 39};
  const std::int64_t width = runner.model().hidden_size();
  std::vector<EmbeddedRows> embedded;
  for (const std::int32_t row : rows) {
    const auto first = runner.embedded().begin() + row * width;
    embeddings.insert(embeddings.end(), first, first + width);
    ids[static_cast<std::size_t>(row)] = 0;
  }
  runner.reset();
  for (std::size_t i = 0; i < rows.size(); ++i)
    embedded.push_back({rows[i], {embeddings.data() + static_cast<std::int64_t>(i) * width, 1, width, width}});
  runner.edit = [&](StepArrays& arrays) {
    arrays.slice_rows = 16;
    arrays.embedded = embedded;
  };
  CHECK(runner.append(ids) == expected);
}

TEST_CASE("Hidden states are those that the logits are made of", "[model]") {
  const TemporaryFolder folder;
  const auto model = small_model(folder, "F32");
  ModelRunner runner(*model, "scalar");
  const auto ids = tokens_from(5, 9);
  const Logits hidden = runner.append_hidden(ids);
  REQUIRE(hidden.size() == 5);
  CHECK(std::ssize(hidden[0]) == runner.model().hidden_size());
  runner.reset();
  runner.take_recording();
  runner.append(ids);
  CHECK(runner.take_recording().back() == hidden);
}
