// Models cut into parts, on the processor: the parts together compute the same as the whole, and a model that cannot be
// cut is refused in one line.
#include <catch2/catch.hpp>

#include "core/base/result.h"
#include "core/model/tools/memory_plan.h"
#include "core/model/tools/synth.h"
#include "kernels/registry.h"
#include "tests/parallel/backend_runner.h"
#include "tests/parallel/host_ranks.h"
#include "tests/support/temporary_folder.h"

namespace quire::test {
namespace {

std::shared_ptr<const LoadedModel> made(const std::string& shape, const std::string& types,
                                        const std::string& keys = "") {
  const TemporaryFolder folder;
  SynthSpec spec = find_synth_shape(shape).value();
  spec.types = find_synth_types(types).value();
  if (spec.family) spec.family->keys += keys;
  if (!spec.family && keys == " kv=4") spec.config.num_kv_heads = 4;
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  return open_model(folder / "model.gguf");  // mapped: the name may go
}

// Sums of parts are rounded at other places than one sum, and nothing else differs. Where activations are rounded to
// int8 a last bit may tip one of them.
constexpr double kOfFloats = 5e-4;
constexpr double kOfInt8 = 0.03;

void check_parts(const LoadedModel& model, int num_ranks, double limit = kOfFloats) {
  const Tokens ids = some_tokens(37);
  const Logits expected = BackendRunner(model, host_backend()).step({ids});
  BackendRunner parts(model, host_ranks(num_ranks));
  const Logits logits = parts.step({ids});
  CHECK(difference(logits, expected) < limit);
  CHECK(parts.chunked(ids, 5) == logits);
  CHECK(parts.step({some_tokens(11, 90), ids, some_tokens(3, 5)}).at(11 + 20) == logits.at(20));
}

// Why `num_ranks` devices cannot compute the model; empty if they can.
std::string refusal(const LoadedModel& model, int num_ranks) {
  try {
    model.require_ranks(num_ranks);
  } catch (const StartupError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the parts of plain decoders compute what the whole computes, for every kind of weights", "[parallel]") {
  for (const char* shape : {"tiny-llama", "tiny-qwen2", "tiny-qwen3"}) {
    for (const char* types : {"F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_1", "IQ4_NL"}) {
      INFO(shape << " of " << types);
      const bool is_float = std::string_view(types).find('F') != std::string_view::npos;
      check_parts(*made(shape, types), 2, is_float ? kOfFloats : kOfInt8);
    }
  }
  check_parts(*made("tiny-llama", "Q8_0", " kv=4"), 4, kOfInt8);
  check_parts(*made("tiny-qwen2", "F16", " kv=4"), 4);
}

TEST_CASE("the parts of every family that can be cut compute what the whole computes", "[parallel]") {
  int num_cut = 0;
  for (const std::string& shape : synth_shape_names()) {
    if (!shape.starts_with("tiny-")) continue;
    const auto model = made(shape, "F32");
    if (!refusal(*model, 2).empty()) continue;
    INFO(shape);
    check_parts(*model, 2);
    ++num_cut;
  }
  CHECK(num_cut >= 30);
}

TEST_CASE("experts and fused products of quantised families are cut between blocks", "[parallel]") {
  for (const char* shape : {"tiny-mixtral", "tiny-gpt-oss", "tiny-phi3", "tiny-cohere2"}) {
    INFO(shape);
    const auto model = made(shape, "Q8_0", " ff=192 fe=96");
    CHECK(refusal(*model, 2) == "");
    if (refusal(*model, 2).empty()) check_parts(*model, 2, kOfInt8);
  }
}

TEST_CASE("a model that so many devices cannot compute together is refused in one line that says why and what fits",
          "[parallel]") {
  const auto heads = made("tiny-llama", "Q8_0");
  CHECK(refusal(*heads, 1).empty());
  CHECK(refusal(*heads, 3) ==
        "llama cannot be computed by 3 devices together: 4 heads of attention over 2 of K and V cannot be divided; 2 "
        "fits, or one device");
  CHECK_THAT(refusal(*made("tiny-llama", "Q4_K", " kv=4"), 2),
             Catch::Contains("the 4 heads of 64 features are 128 for each, which blocks of 256 do not divide"));
  CHECK_THAT(refusal(*heads, 9), Catch::Contains("more than 8 devices"));
  CHECK_THAT(refusal(*made("tiny-deepseek2", "F32"), 2), Catch::Contains("latent attention"));
  CHECK_THAT(refusal(*made("tiny-mamba", "F32"), 2), Catch::Contains("recurrent layers"));
  CHECK_THAT(refusal(*made("tiny-bitnet", "F32"), 2), Catch::Contains("a norm"));
  CHECK_THAT(refusal(*made("tiny-gemma3n", "F32"), 2), Catch::Contains("leave backend.tensor_parallel out"));
  CHECK_THROWS_AS(heads->build(*host_ranks(3), {}), StartupError);
}

TEST_CASE("several GPUs are asked of a machine that has none: one line", "[parallel]") {
  CHECK_THROWS_WITH(create_backend({.device = "cpu", .tensor_parallel = 2}),
                    "backend.tensor_parallel is 2, and backend.device is cpu: set it to cuda, or "
                    "backend.tensor_parallel to 1");
  CHECK_THROWS_WITH(create_backend({.device = "auto", .tensor_parallel = 2}),
                    Catch::StartsWith("backend.tensor_parallel is 2, and this build has no CUDA backend"));
}

TEST_CASE("the memory plan of several devices is that of one of them", "[parallel]") {
  const auto model = made("tiny-llama", "Q8_0");
  const auto backend = host_backend();
  const MemoryNeeds alone = memory_needs(*model, *backend, {}, {});
  const MemoryNeeds each = memory_needs(*model, *backend, {}, {.num_ranks = 2});
  CHECK(each.num_ranks == 2);
  CHECK(each.kv_block_bytes * 2 == alone.kv_block_bytes);
  CHECK(each.weight_bytes < alone.weight_bytes);
  CHECK(each.weight_bytes * 2 > alone.weight_bytes);
  const auto ranks = host_ranks(2);
  const MemoryNeeds same = memory_needs(*model, *ranks, {}, {});
  CHECK(same.kv_block_bytes == each.kv_block_bytes);
  CHECK(same.weight_bytes == each.weight_bytes);
  const MemoryPlan plan = plan_memory(each, {}, {.available = std::uint64_t{8} << 30, .limited_by = "GPU 0"});
  CHECK_THAT(plan.describe(), Catch::Contains("on each of 2 devices: weights "));
  CHECK_THROWS_AS(memory_needs(*model, *backend, {}, {.num_ranks = 3}), StartupError);
}

TEST_CASE("an interrupted pass ends after the same rows on all ranks", "[parallel]") {
  const auto model = made("tiny-llama", "F16");
  BackendRunner parts(*model, host_ranks(2));
  const std::atomic<bool> interrupt{true};
  parts.edit = [&](StepArrays& arrays) {
    arrays.interrupt = &interrupt;
    arrays.slice_rows = 8;
  };
  parts.step({some_tokens(40)});
  CHECK(parts.num_computed == 8);
  parts.edit = [&](StepArrays& arrays) {
    arrays.interrupt = &interrupt;
    arrays.cuts_slices = true;
  };
  parts.step({some_tokens(40)});
  CHECK(parts.num_computed == 0);
  parts.edit = nullptr;
  CHECK(parts.step({some_tokens(40)}) == BackendRunner(*model, host_ranks(2)).step({some_tokens(40)}));
}

TEST_CASE("blocks of several ranks are copied, read and written as one", "[parallel]") {
  const auto ranks = host_ranks(2);
  const auto kv =
      ranks->allocate_kv({.num_layers = 2, .num_blocks = 3, .num_kv_heads = 4, .head_dim = 16, .dtype = KvDType::kF16});
  CHECK(kv->layout().num_kv_heads == 4);
  CHECK(kv->block_bytes() == ranks->kv_block_bytes(kv->layout()));
  std::vector<std::byte> in(kv->block_bytes());
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<std::byte>(i * 31 + i / 97);
  kv->write_block(2, in);
  kv->copy_block(2, 0);
  std::vector<std::byte> out(in.size());
  kv->read_block(0, out);
  CHECK(out == in);
}

}  // namespace quire::test
