#include <algorithm>
#include <catch2/catch.hpp>

#include "core/base/result.h"
#include "core/model/formats/gguf/gguf.h"
#include "core/model/formats/gguf/gguf_writer.h"
#include "core/model/formats/tensor_table.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/tools/synth.h"
#include "kernels/registry.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"

using Catch::Contains;
using namespace quire;
using quire::test::TemporaryFolder;

namespace {

// Copies a GGUF file with its scalar metadata, string arrays and tensors, with changes.
struct Changes {
  std::vector<std::int32_t> numbers = {};  // the value of set_key, a list
  bool pads_shapes = false;                // adds dimensions of one
  std::string drop_tensor = {};
  std::string add_tensor = {};
  std::string drop_key = {};
  std::string set_key = {};
  std::string text = {};  // value of set_key; if empty, `number`
  std::uint32_t number = 0;
};

void copy_value(GgufWriter& out, std::string_view key, const GgufValue& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) out.set(key, *text);
  if (const auto* number = std::get_if<std::uint64_t>(&value)) out.set(key, static_cast<std::uint32_t>(*number));
  if (const auto* real = std::get_if<double>(&value)) out.set(key, static_cast<float>(*real));
  if (const auto* flag = std::get_if<bool>(&value)) out.set(key, *flag);
  if (const auto* list = std::get_if<std::vector<std::string_view>>(&value)) {
    out.set(key, std::span<const std::string>(std::vector<std::string>(list->begin(), list->end())));
  }
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
    out.set(key, std::span<const std::int32_t>(std::vector<std::int32_t>(list->begin(), list->end())));
  }
}

void copy_with(const std::filesystem::path& from, const std::filesystem::path& to, const Changes& changes) {
  const auto file = GgufFile::open(from);
  GgufWriter out(to);
  for (const auto& [key, value] : file->metadata()) {
    if (key != changes.drop_key && key != changes.set_key) copy_value(out, key, value);
  }
  if (!changes.numbers.empty()) {
    out.set(changes.set_key, std::span<const std::int32_t>(changes.numbers));
  } else if (!changes.text.empty()) {
    out.set(changes.set_key, std::string_view(changes.text));
  } else if (!changes.set_key.empty()) {
    out.set(changes.set_key, changes.number);
  }
  const auto kept = [&](const GgufTensor& tensor) { return tensor.name != changes.drop_tensor; };
  for (const GgufTensor& tensor : file->tensors()) {
    std::vector<std::int64_t> shape = tensor.shape;
    if (changes.pads_shapes) shape.resize(4, 1);
    if (kept(tensor)) out.declare(tensor.name, shape, tensor.type.value());
  }
  const std::vector<std::int64_t> shape{8};
  if (!changes.add_tensor.empty()) out.declare(changes.add_tensor, shape, DType::kF32);
  out.begin_data();
  for (const GgufTensor& tensor : file->tensors()) {
    if (kept(tensor)) out.append(tensor.data);
  }
  if (!changes.add_tensor.empty()) out.append(std::vector<std::byte>(32));
  out.finish();
}

}  // namespace

TEST_CASE("A GGUF file that is no model Quire computes is refused by what it lacks or has too much", "[model][gguf]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-qwen3").value();
  spec.types = find_synth_types("Q8_0").value();
  write_synthetic_gguf(spec, folder / "whole.gguf", {});
  REQUIRE_NOTHROW(open_model(folder / "whole.gguf"));
  const auto require_refused = [&](const Changes& changes, const std::string& reason) {
    copy_with(folder / "whole.gguf", folder / "changed.gguf", changes);
    CHECK_THROWS_WITH(open_model(folder / "changed.gguf"),
                      Catch::StartsWith((folder / "changed.gguf").string() + ": ") && Contains(reason));
  };
  require_refused({.drop_tensor = "blk.1.ffn_up.weight"}, "the tensor 'blk.1.ffn_up.weight' is missing");
  require_refused({.drop_tensor = "blk.0.attn_q_norm.weight"}, "the tensor 'blk.0.attn_q_norm.weight' is missing");
  require_refused({.drop_tensor = "token_embd.weight"}, "the tensor 'token_embd.weight' is missing");
  require_refused({.add_tensor = "blk.0.ffn_gate_inp.weight"}, "'blk.0.ffn_gate_inp.weight' is not part of");
  require_refused({.drop_key = "general.architecture"}, "'general.architecture' is missing");
  require_refused({.set_key = "general.architecture", .text = "rwkv"}, "the architecture 'rwkv' is not supported");
  require_refused({.drop_key = "qwen3.block_count"}, "'qwen3.block_count' is missing");
  require_refused({.set_key = "qwen3.block_count", .text = "two"},
                  "'qwen3.block_count' is the text 'two', not a whole number");
  require_refused({.set_key = "qwen3.block_count", .number = 3}, "blk.2.attn_norm.weight' is missing");
  require_refused({.set_key = "qwen3.block_count", .number = 1}, "blk.1.attn_norm.weight' is not part of");
  require_refused({.set_key = "qwen3.block_count", .number = 4000000000}, "the number of layers");
  require_refused({.set_key = "qwen3.embedding_length", .number = 128}, "has the shape [512, 256]");
  require_refused({.set_key = "qwen3.vocab_size", .number = 500},
                  "the metadata says 500 tokens and the embedding has 512");
  require_refused({.set_key = "qwen3.expert_count", .number = 8}, "mixture-of-experts");
  require_refused({.set_key = "qwen3.rope.scaling.type", .text = "longrope"}, "RoPE scaling type 'longrope'");
  require_refused({.set_key = "qwen3.attention.head_count", .number = 3}, "3 heads cannot share 2");
  require_refused({.drop_key = "tokenizer.ggml.tokens"}, "tokenizer");
  require_refused({.set_key = "qwen3.pooling_type", .number = 4}, "'qwen3.pooling_type' is 4");
}

TEST_CASE("A GGUF file says how its embeddings are pooled; a generator's are the last position's", "[model][gguf]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-qwen3").value();
  write_synthetic_gguf(spec, folder / "whole.gguf", {});
  CHECK(open_model(folder / "whole.gguf")->info().pooling == Pooling::kLast);
  const Pooling expected[] = {Pooling::kLast, Pooling::kMean, Pooling::kCls, Pooling::kLast};
  for (std::uint32_t type = 0; type < 4; ++type) {
    copy_with(folder / "whole.gguf", folder / "changed.gguf", {.set_key = "qwen3.pooling_type", .number = type});
    CHECK(open_model(folder / "changed.gguf")->info().pooling == expected[type]);
  }
}

TEST_CASE("A synthetic file depends on its spec alone and opens as the model it names", "[model][synth]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-llama").value();
  spec.types = find_synth_types("q4_k_m").value();
  const auto bytes_of = [&](const char* name) {
    write_synthetic_gguf(spec, folder / name, {});
    std::ifstream file(folder / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string first = bytes_of("a.gguf");
  CHECK(bytes_of("b.gguf") == first);
  spec.seed = 2;
  CHECK(bytes_of("c.gguf") != first);
  const auto model = open_model(folder / "a.gguf");
  CHECK(model->info().file_type == "Q4_K");
  CHECK_FALSE(model->chat_template().empty());
  const auto tokenizer = model->tokenizer();
  CHECK(tokenizer->vocab_size() == 512);
  std::string text;
  for (const TokenId id : tokenizer->encode("The cat and the dog.", false, false))
    text += tokenizer->token_bytes(id);
  CHECK(text == "The cat and the dog.");
}

TEST_CASE("Building a model reports its progress to the end", "[model]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-qwen2").value();
  spec.types = find_synth_types("F16").value();
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  const auto backend = create_backend({.device = "cpu", .cpu = {.isa = "scalar", .threads = 1, .pin = false}});
  std::uint64_t last = 0;
  std::uint64_t total = 0;
  const auto model = open_model(folder / "model.gguf")->build(*backend, [&](std::uint64_t done, std::uint64_t all) {
    CHECK(done > last);
    last = done;
    total = all;
  });
  CHECK(last == total);
  CHECK(total > 0);
  CHECK(model->vocab_size() == 512);
}

TEST_CASE("A tower in a GGUF file is left out and named", "[model][gguf]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-qwen3").value();
  spec.types = find_synth_types("Q8_0").value();
  write_synthetic_gguf(spec, folder / "whole.gguf", {});
  copy_with(folder / "whole.gguf", folder / "tower.gguf",
            {.add_tensor = "v.patch_embd.weight", .set_key = "qwen3.vision.block_count", .number = 3});
  const auto model = open_model(folder / "tower.gguf");
  CHECK(model->info().parts_left_out == std::vector<std::string>{kVisionPart});
  copy_with(folder / "whole.gguf", folder / "hearing.gguf", {.add_tensor = "mm.a.mlp.0.weight"});
  const auto hearing = open_model(folder / "hearing.gguf");
  CHECK(hearing->info().parts_left_out == std::vector<std::string>{kAudioPart});
}

TEST_CASE("A GGUF tokenizer's keys count whatever type a converter gave them", "[model][gguf]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-llama").value();
  write_synthetic_gguf(spec, folder / "whole.gguf", {});
  const auto changed = [&](const Changes& changes) {
    copy_with(folder / "whole.gguf", folder / "changed.gguf", changes);
    return open_model(folder / "changed.gguf")->tokenizer();
  };
  const std::string bos = "tokenizer.ggml.add_bos_token";
  const auto begins = [&](const Changes& changes) { return changed(changes)->encode("a", true, false).size() > 1; };
  CHECK(begins({.set_key = bos, .number = 1}));
  CHECK(begins({.set_key = bos, .text = "true"}));
  CHECK(begins({.numbers = {1}, .set_key = bos}));
  CHECK_FALSE(begins({.set_key = bos, .number = 0}));
  CHECK_FALSE(begins({.set_key = bos, .text = "false"}));
  CHECK_THROWS_WITH(changed({.set_key = bos, .text = "perhaps"}),
                    Contains("'tokenizer.ggml.add_bos_token' is the text 'perhaps', not true or false"));
  const std::string eos = "tokenizer.ggml.eos_token_id";
  const auto ends = [&](const Changes& changes) {
    const auto tokenizer = changed(changes);
    const auto ids = tokenizer->end_of_generation();
    return std::vector<TokenId>(ids.begin(), ids.end());
  };
  const auto has = [](const std::vector<TokenId>& ids, std::int32_t id) {
    return std::find(ids.begin(), ids.end(), TokenId{id}) != ids.end();
  };
  CHECK(has(ends({.set_key = eos, .text = "7"}), 7));
  CHECK(has(ends({.numbers = {7}, .set_key = eos}), 7));
  const auto both = ends({.numbers = {7, 9}, .set_key = eos});
  CHECK((has(both, 7) && has(both, 9)));
  CHECK_THROWS_WITH(ends({.set_key = eos, .text = "</s>"}), Contains(eos) && Contains("not a whole number"));
  CHECK_THROWS_WITH(changed({.set_key = "tokenizer.ggml.model", .number = 3}), Contains("not a string"));
  CHECK_THROWS_WITH(changed({.set_key = "tokenizer.ggml.tokens", .number = 3}), Contains("not a list of strings"));
  CHECK_THROWS_WITH(changed({.set_key = "tokenizer.chat_template", .number = 3}), Contains("not a string"));
}

TEST_CASE("Trailing dimensions of one say nothing", "[model][gguf]") {
  const TemporaryFolder folder;
  for (const char* shape : {"tiny-llama", "tiny-qwen3moe"}) {
    write_synthetic_gguf(find_synth_shape(shape).value(), folder / "whole.gguf", {});
    copy_with(folder / "whole.gguf", folder / "padded.gguf", {.pads_shapes = true});
    CHECK_NOTHROW(open_model(folder / "padded.gguf"));
  }
}

TEST_CASE("Defaults of a GGUF file are in a request's ranges", "[model][gguf]") {
  const TemporaryFolder folder;
  write_synthetic_gguf(find_synth_shape("tiny-llama").value(), folder / "whole.gguf", {});
  const auto defaults = [&](const Changes& changes) {
    copy_with(folder / "whole.gguf", folder / "changed.gguf", changes);
    return open_model(folder / "changed.gguf");
  };
  CHECK(defaults({.set_key = "general.sampling.temp", .text = "0.25"})->generation_defaults().temperature == 0.25F);
  CHECK_THROWS_WITH(defaults({.set_key = "general.sampling.temp", .text = "-1"}),
                    Contains("'general.sampling.temp' is -1, not between 0 and 100"));
  CHECK_THROWS_WITH(defaults({.set_key = "general.sampling.top_p", .number = 2}), Contains("top_p' is 2"));
  CHECK_THROWS_WITH(defaults({.set_key = "general.sampling.top_k", .text = "many"}), Contains("not a number"));
  const auto warnings = defaults({.set_key = "general.sampling.mirostat", .number = 2})->info().warnings;
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("'general.sampling.mirostat' is not applied"));
}

TEST_CASE("The bundled model says how it is to be sampled", "[model][gguf]") {
  const auto defaults = open_model(test::source_folder() / "deploy/demo-model/quire-demo.gguf")->generation_defaults();
  CHECK(defaults.temperature == 0.7F);
  CHECK(defaults.top_k == 40);
  CHECK(defaults.top_p == 0.95F);
}

TEST_CASE("Tokens beyond the embedding are left out where no client's text yields them", "[model][gguf]") {
  const TemporaryFolder folder;
  write_synthetic_gguf(find_synth_shape("tiny-llama").value(), folder / "whole.gguf", {});
  const auto whole = open_model(folder / "whole.gguf");
  const auto longer = [&](const std::string& text, std::int32_t kind, const std::string& chat_template = "") {
    const auto file = GgufFile::open(folder / "whole.gguf");
    const auto* tokens = file->get_strings("tokenizer.ggml.tokens");
    std::vector<std::string> list(tokens->begin(), tokens->end());
    list.push_back(text);
    std::vector<std::int32_t> kinds(list.size(), 1);
    kinds.back() = kind;
    GgufWriter out(folder / "longer.gguf");
    for (const auto& [key, value] : file->metadata()) {
      const bool is_other = key == "tokenizer.ggml.tokens" || key == "tokenizer.ggml.token_type" ||
                            (key == "tokenizer.chat_template" && !chat_template.empty());
      if (!is_other) copy_value(out, key, value);
    }
    out.set("tokenizer.ggml.tokens", std::span<const std::string>(list));
    out.set("tokenizer.ggml.token_type", std::span<const std::int32_t>(kinds));
    if (!chat_template.empty()) out.set("tokenizer.chat_template", std::string_view(chat_template));
    for (const GgufTensor& tensor : file->tensors())
      out.declare(tensor.name, tensor.shape, tensor.type.value());
    out.begin_data();
    for (const GgufTensor& tensor : file->tensors())
      out.append(tensor.data);
    out.finish();
    return open_model(folder / "longer.gguf");
  };
  constexpr std::int32_t kControl = 3;
  constexpr std::int32_t kUserDefined = 4;
  constexpr std::int32_t kUnused = 5;
  const auto same_text = [&](const std::shared_ptr<const LoadedModel>& model, const std::string& text) {
    CHECK(model->tokenizer()->vocab_size() == whole->info().vocab_size);
    CHECK_FALSE(model->tokenizer()->find_token(text));
    const std::string around = "a " + text + " b";
    CHECK(model->tokenizer()->encode(around, false, true) == whole->tokenizer()->encode(around, false, true));
  };
  same_text(longer("[PAD512]", kUnused), "[PAD512]");
  same_text(longer("<pad>", kControl), "<pad>");
  CHECK_THROWS_WITH(longer("<pad>", kControl, "{{ messages }}<pad>"), Contains("the chat template writes token 512"));
  CHECK_THROWS_WITH(longer("<picture>", kUserDefined), Contains("the text '<picture>' yields token 512"));
}

TEST_CASE("An unknown key of a GGUF file is refused with a way out", "[model][gguf]") {
  const TemporaryFolder folder;
  write_synthetic_gguf(find_synth_shape("tiny-llama").value(), folder / "whole.gguf", {});
  copy_with(folder / "whole.gguf", folder / "changed.gguf", {.set_key = "llama.attention.curve", .number = 3});
  CHECK_THROWS_WITH(open_model(folder / "changed.gguf"), Contains("'llama.attention.curve' is not supported") &&
                                                             Contains("model.ignore_unknown_keys") &&
                                                             !Contains("llama.translated"));
  const auto model = open_model(folder / "changed.gguf", true, {.ignore_unknown_keys = true});
  REQUIRE(model->info().warnings.size() == 1);
  CHECK_THAT(model->info().warnings[0], Contains("'llama.attention.curve' is not known and is ignored"));
}

TEST_CASE("YaRN and linear scaling in a GGUF file extend its context", "[model][gguf]") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape("tiny-llama").value();
  const auto context = [&](RopeScaling scaling, double original) {
    spec.config.rope.scaling = scaling;
    spec.config.rope.factor = 4.0;
    spec.config.rope.original_context = original;
    write_synthetic_gguf(spec, folder / "model.gguf", {});
    return open_model(folder / "model.gguf")->info().max_context;
  };
  const std::int64_t stated = spec.config.max_context;
  CHECK(context(RopeScaling::kYarn, static_cast<double>(stated)) == 4 * stated);
  CHECK(context(RopeScaling::kYarn, static_cast<double>(stated) / 4.0) == stated);
  CHECK(context(RopeScaling::kLinear, 0.0) == 4 * stated);
}
