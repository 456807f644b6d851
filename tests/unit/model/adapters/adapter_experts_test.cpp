// Adapters that change experts, in each form of file.
#include <catch2/catch.hpp>

#include "core/base/result.h"
#include "core/model/layers/checkpoint.h"
#include "core/model/parts/adapter.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/adapters/adapter_files.h"
#include "tests/unit/model/model_runner.h"

using namespace quire;
using namespace quire::test;

namespace {

// A model with experts, and requests to it with different adapters.
class Scene {
 public:
  explicit Scene(const std::string& shape)
      : file(write_model(shape, "F32", folder / "model.gguf")),
        architecture(text_of(*file, "general.architecture")),
        ffn(make_gguf_checkpoint(file, "model").spec.layers.back().feed_forward),
        hidden(make_gguf_checkpoint(file, "model").spec.config.hidden_size),
        runner_(*open_model(folder / "model.gguf", false), "scalar") {
    runner_.model().allow_adapters(16);
  }

  Logits with(const std::string& name) {
    const auto adapter = runner_.model().load_adapter(folder / name);
    const std::vector<const Adapter*> adapters{adapter.get()};
    runner_.edit = [&](StepArrays& arrays) { arrays.adapters = adapters; };
    runner_.reset();
    return runner_.append(tokens(20, 3));
  }
  Logits merged(const std::vector<Change>& changes) {
    write_merged(folder / "model.gguf", changes, folder / "merged.gguf");
    return ModelRunner(*open_model(folder / "merged.gguf", false), "scalar").append(tokens(20, 3));
  }
  Logits with_gguf(const std::vector<Change>& changes) {
    write_adapter(changes, architecture, folder / "adapter.gguf");
    return with("adapter.gguf");
  }
  Logits with_peft(const std::vector<Change>& changes, bool is_turned = false) {
    write_peft(changes, folder / "peft", is_turned);
    return with("peft");
  }
  template <class Write>
  std::string refusal(const Write& write, const std::string& name) {
    write();
    try {
      runner_.model().load_adapter(folder / name);
    } catch (const StartupError& error) {
      return error.what();
    }
    return "";
  }

  const TemporaryFolder folder;
  const std::shared_ptr<const GgufFile> file;
  const std::string architecture;
  const FeedForwardSpec ffn;
  const std::int64_t hidden;

 private:
  ModelRunner runner_;
};

constexpr std::int64_t kRank = 4;

}  // namespace

TEST_CASE("Experts of a stack that one matrix of gate and up changes have what is merged into the two",
          "[model][adapter]") {
  Scene scene("tiny-qwen3moe");
  const std::int64_t size = scene.ffn.expert_size;
  const Change both =
      random_change("blk.1.ffn_gate_up_exps.weight", scene.hidden, 2 * size, kRank, scene.ffn.num_experts, 5);
  const Logits wanted = scene.merged(
      {part_of(both, 0, size, "blk.1.ffn_gate_exps.weight"), part_of(both, size, size, "blk.1.ffn_up_exps.weight")});
  CHECK(difference(scene.with_gguf({both}), wanted) < 1e-4);
}

TEST_CASE("PEFT's modules of single experts have the bits of a stack that changes no other", "[model][adapter]") {
  const auto [shape, gate, down] = GENERATE(table<std::string, std::string, std::string>({
      {"tiny-qwen3moe", "mlp.experts.#.gate_proj", "mlp.experts.#.down_proj"},
      {"tiny-qwen3moe", "block_sparse_moe.experts.#.w1", ""},
      {"tiny-minimax-m2", "block_sparse_moe.experts.#.w1", "block_sparse_moe.experts.#.w2"},
  }));
  CAPTURE(shape, gate);
  Scene scene(shape);
  std::vector<Change> stacks{
      random_change("blk.1.ffn_gate_exps.weight", scene.hidden, scene.ffn.expert_size, kRank, scene.ffn.num_experts, 6),
      random_change("blk.1.ffn_down_exps.weight", scene.ffn.expert_size, scene.hidden, kRank, scene.ffn.num_experts,
                    7)};
  std::vector<Change> single;
  for (const std::int64_t expert : {0, 2}) {
    const auto named = [&](std::string form) {
      return "layers.1." + form.replace(form.find('#'), 1, std::to_string(expert));
    };
    single.push_back(of_expert(stacks[0], expert, named(gate)));
    if (!down.empty()) single.push_back(of_expert(stacks[1], expert, named(down)));
  }
  if (down.empty()) {  // another architecture's names
    const auto write = [&] { write_peft(single, scene.folder / "peft"); };
    CHECK_THAT(scene.refusal(write, "peft"), Catch::Contains("'layers.1.block_sparse_moe.experts.0.w1' is no product"));
    return;
  }
  for (Change& stack : stacks) {
    for (std::int64_t expert = 0; expert < stack.num_experts; ++expert) {
      const std::int64_t count = stack.outputs * stack.rank;
      if (expert != 0 && expert != 2) std::fill_n(stack.up.begin() + expert * count, count, 0.0F);
    }
  }
  CHECK(scene.with_peft(single) == scene.with_gguf(stacks));
}

TEST_CASE("PEFT's pairs of parameters of the whole stack have the bits of GGUF's stacks", "[model][adapter]") {
  Scene scene("tiny-qwen3moe");
  const std::int64_t size = scene.ffn.expert_size;
  REQUIRE(2 * size != scene.hidden);
  REQUIRE(size != scene.hidden);
  std::vector<Change> changes{
      random_change("blk.1.ffn_gate_up_exps.weight", scene.hidden, 2 * size, kRank, scene.ffn.num_experts, 8),
      random_change("blk.1.ffn_down_exps.weight", size, scene.hidden, kRank, scene.ffn.num_experts, 9)};
  const Logits wanted = scene.with_gguf(changes);
  const bool down_is_inner = GENERATE(false, true);
  changes[down_is_inner ? 1 : 0].name = "layers.1.mlp.experts.base_layer";
  changes[down_is_inner ? 0 : 1].name = "layers.1.mlp.experts";
  CHECK(scene.with_peft(changes) == wanted);
  CHECK(scene.with_peft(changes, true) == wanted);
}

TEST_CASE("Outputs of gate and up that alternate in a family's stacks do so in its adapters", "[model][adapter]") {
  Scene scene("tiny-gpt-oss");
  const std::int64_t size = scene.ffn.expert_size;
  Change both = random_change("layers.1.mlp.experts", scene.hidden, 2 * size, kRank, scene.ffn.num_experts, 4);
  const Logits got = scene.with_peft({both});
  Change ordered = both;
  ordered.name = "blk.1.ffn_gate_up_exps.weight";
  for (std::int64_t row = 0; row < scene.ffn.num_experts * 2 * size; ++row) {
    const std::int64_t in_expert = row % (2 * size);
    const std::int64_t from = row - in_expert + (in_expert < size ? 2 * in_expert : 2 * (in_expert - size) + 1);
    std::copy_n(both.up.begin() + from * kRank, kRank, ordered.up.begin() + row * kRank);
  }
  CHECK(got == scene.with_gguf({ordered}));
}

TEST_CASE("Adapters of experts that do not fit are refused by name", "[model][adapter]") {
  Scene scene("tiny-qwen3moe");
  const std::int64_t experts = scene.ffn.num_experts;
  const std::int64_t size = scene.ffn.expert_size;
  const auto gguf = [&](const Change& change) {
    return scene.refusal([&] { write_adapter({change}, scene.architecture, scene.folder / "adapter.gguf"); },
                         "adapter.gguf");
  };
  const auto peft = [&](const Change& change) {
    return scene.refusal([&] { write_peft({change}, scene.folder / "peft"); }, "peft");
  };
  const std::string gate = "blk.1.ffn_gate_exps.weight";
  CHECK(gguf(random_change(gate, scene.hidden, size, kRank, experts, 1)).empty());
  CHECK_THAT(gguf(random_change(gate, scene.hidden, size, kRank, experts + 1, 1)), Catch::Contains("do not fit"));
  CHECK_THAT(gguf(random_change(gate, scene.hidden, size, kRank, 0, 1)), Catch::Contains("do not fit"));
  CHECK_THAT(gguf(random_change(gate, scene.hidden, size, 17, experts, 1)), Catch::Contains("rank 17; at most 16"));
  const std::string last = "layers.1.mlp.experts." + std::to_string(experts) + ".gate_proj";
  CHECK_THAT(peft(random_change(last, scene.hidden, size, kRank, 0, 1)),
             Catch::Contains("'" + last + "' is no product"));
  const std::string stack = "layers.1.mlp.experts";
  CHECK_THAT(peft(random_change(stack, scene.hidden, 2 * size, kRank, experts + 1, 1)),
             Catch::Contains("not those of"));
  CHECK_THAT(peft(random_change(stack, scene.hidden, size + 1, kRank, experts, 1)),
             Catch::Contains("fit no parameter"));
}
