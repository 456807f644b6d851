// The quantised formats of Hugging Face checkpoints: read values equal the formats' definitions.
#include "core/model/formats/hf/directory_tensors.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/result.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/hf/hf_directory.h"
#include "tests/unit/model/model_runner.h"
#include "tests/unit/model/weight_formats.h"

using Catch::Contains;
using namespace quire;
using namespace quire::test;

namespace {

constexpr std::int64_t kRows = 160;
constexpr std::int64_t kCols = 384;

std::vector<float> some_weights() {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  std::vector<float> out(kRows * kCols);
  for (float& weight : out)
    weight = normal(random);
  return out;
}

QuantConfig config_of(const nlohmann::json& quantization) {
  return read_quant_config({{"quantization_config", quantization}}, "config.json");
}

std::vector<StoredTensor> stored(const FormattedWeight& weight) {
  std::vector<StoredTensor> out;
  for (const RawTensor& tensor : weight.tensors)
    out.push_back(stored_tensor(tensor));
  return out;
}

// [rows][cols] in the order of the input features.
std::vector<float> decoded_rows(const WeightSource& source) {
  std::vector<float> out(static_cast<std::size_t>(source.rows * source.cols));
  std::vector<std::byte> blocks(dtype_bytes(source.type, source.cols));
  std::vector<float> row(static_cast<std::size_t>(source.cols));
  for (std::int64_t r = 0; r < source.rows; ++r) {
    source.maker->make_row(source.first_row + r, blocks.data());
    dequantize(source.type, blocks.data(), source.cols, row.data());
    for (std::int64_t k = 0; k < source.cols; ++k) {
      const std::int64_t col = source.order == nullptr ? k : source.order[k];
      out[static_cast<std::size_t>(r * source.cols + col)] = row[static_cast<std::size_t>(k)];
    }
  }
  return out;
}

Logits quantized_logits(const std::filesystem::path& path) {
  const std::vector<std::int32_t> ids{5, 200, 17, 300, 8, 8, 150, 42, 77, 260, 31, 119};
  return ModelRunner(*open_model(path), "scalar").append(ids);
}

double largest_difference(const Logits& a, const Logits& b) {
  float scale = 0.0F;
  float worst = 0.0F;
  for (std::size_t row = 0; row < a.size(); ++row) {
    for (std::size_t i = 0; i < a[row].size(); ++i) {
      scale = std::max(scale, std::fabs(a[row][i]));
      worst = std::max(worst, std::fabs(a[row][i] - b.at(row).at(i)));
    }
  }
  return static_cast<double>(worst / scale);
}

bool is_float8(WeightFormat format) {
  return format == WeightFormat::kFp8Block || format == WeightFormat::kFp8Channel;
}

}  // namespace

TEST_CASE("Weights of every quantised format have the values of its definition", "[hf][quantized]") {
  const std::vector<float> weights = some_weights();
  for (const WeightFormat format : kWeightFormats) {
    INFO(quantization_config(format).dump());
    const FormattedWeight formatted = format_weight(format, "a", weights, kRows, kCols);
    TensorTable table("test", join_quantized(stored(formatted), config_of(quantization_config(format)), "test"));
    const WeightSource source = table.take_matrix("a.weight", kRows, kCols);
    const bool is_ordered = format == WeightFormat::kGptqOrder || format == WeightFormat::kGptq3;
    CHECK((source.order != nullptr) == is_ordered);
    table.refuse_unused("test");
    std::vector<float> values = decoded_rows(source);
    for (float& value : values)
      value *= source.scale;
    std::size_t wrong = 0;
    double distance = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      wrong += values[i] != static_cast<float>(formatted.values[i]) ? 1 : 0;
      distance = std::max(distance, std::fabs(static_cast<double>(values[i] - weights[i])));
    }
    CHECK(wrong == 0);
    const bool is_coarse = format == WeightFormat::kGptq2 || format == WeightFormat::kGptq3;
    CHECK(distance < (is_coarse ? 0.12 : 0.06));  // the matrix was read in its written order
  }
}

TEST_CASE("MXFP4 blocks of a stack of experts are read as matrices one below the other", "[hf][quantized]") {
  std::mt19937 random(9);
  RawTensor blocks{"experts.up_blocks", "U8", {2, 3, 2, 16}, std::vector<std::byte>(192)};
  RawTensor scales{"experts.up_scales", "U8", {2, 3, 2}, std::vector<std::byte>(12)};
  for (std::byte& byte : blocks.data)
    byte = static_cast<std::byte>(random() & 255);
  for (std::byte& byte : scales.data)
    byte = static_cast<std::byte>(120 + random() % 8);
  const auto joined =
      join_quantized({stored_tensor(blocks), stored_tensor(scales)}, config_of({{"quant_method", "mxfp4"}}), "test");
  REQUIRE(joined.size() == 1);
  CHECK(joined[0].name == "experts.up");
  CHECK(joined[0].shape == std::vector<std::int64_t>{2, 3, 64});
  const WeightSource all{.type = *joined[0].type, .rows = 6, .cols = 64, .maker = joined[0].maker.get()};
  const std::vector<float> second = decoded_rows(rows_of(all, 3, 3));
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::size_t i = 0; i < second.size(); ++i) {
    const auto byte = std::to_integer<unsigned>(blocks.data[(192 + i) / 2]);
    const unsigned code = (byte >> (i % 2 * 4)) & 15u;
    const int exponent = std::to_integer<int>(scales.data[(192 + i) / 32]) - 127;
    const double value = std::ldexp(kValues[code & 7u], exponent);
    CHECK(static_cast<double>(second[i]) == (code > 7 ? -value : value));
  }
}

TEST_CASE("A model in every quantised format computes what its decoded weights do", "[model][hf][quantized][.long]") {
  SynthSpec spec = find_synth_shape("tiny-qwen3").value();
  spec.types = find_synth_types("F32").value();
  const TemporaryFolder folder;
  write_synthetic_gguf(spec, folder / "model.gguf", {});
  for (const WeightFormat format : kWeightFormats) {
    INFO(quantization_config(format).dump());
    const std::string name = std::to_string(static_cast<int>(format));
    write_hf_directory(folder / "model.gguf", spec.config, {.format = format}, folder / ("hf" + name));
    write_hf_directory(folder / "model.gguf", spec.config, {.format = format, .decoded = true},
                       folder / ("ref" + name));
    // E4M3 meets activations in f32; quants of four bits meet activations of eight.
    const double limit = is_float8(format) ? 1e-5 : 0.05;
    CHECK(largest_difference(quantized_logits(folder / ("hf" + name)), quantized_logits(folder / ("ref" + name))) <
          limit);
  }
}

TEST_CASE("A quantisation that would change what is computed is refused by one line", "[hf][quantized]") {
  const auto refusal = [](const nlohmann::json& change, WeightFormat format) {
    nlohmann::json config = quantization_config(format);
    config.merge_patch(change);
    try {
      config_of(config);
    } catch (const StartupError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(nlohmann::json::object(), WeightFormat::kGptq).empty());
  CHECK_THAT(refusal({{"bits", 5}}, WeightFormat::kGptq), Contains("'bits' is 5"));
  CHECK_THAT(refusal({{"bits", 8}}, WeightFormat::kAwq), Contains("'bits' is 8"));
  CHECK_THAT(refusal({{"group_size", 48}}, WeightFormat::kGptq), Contains("'group_size' is 48"));
  CHECK_THAT(refusal({{"checkpoint_format", "marlin"}}, WeightFormat::kGptq), Contains("checkpoint_format 'marlin'"));
  CHECK_THAT(refusal({{"dynamic", {{"-:lm_head", 1}}}}, WeightFormat::kGptq), Contains("'dynamic' is not supported"));
  CHECK_THAT(refusal({{"rotation", 1}}, WeightFormat::kAwq), Contains("the key 'rotation' is not supported"));
  CHECK_THAT(refusal({{"version", "gemv"}}, WeightFormat::kAwq), Contains("version 'gemv'"));
  CHECK_THAT(refusal({{"fmt", "e5m2"}}, WeightFormat::kFp8Block), Contains("'fmt' is 'e5m2'"));
  CHECK_THAT(refusal({{"weight_block_size", {128, 64}}}, WeightFormat::kFp8Block), Contains("multiple of 128"));
  CHECK_THAT(refusal({{"format", "marlin-24"}}, WeightFormat::kPacked), Contains("'format' is 'marlin-24'"));
  CHECK_THAT(refusal({{"quant_algo", "NVFP4_AWQ"}}, WeightFormat::kNvfp4Times), Contains("quant_algo 'NVFP4_AWQ'"));
  CHECK_THAT(refusal({{"quant_method", "bitsandbytes"}}, WeightFormat::kGptq), Contains("'bitsandbytes'"));
}

TEST_CASE("Quantised tensors that do not belong together are refused by name", "[hf][quantized]") {
  const FormattedWeight gptq = format_weight(WeightFormat::kGptq, "a", some_weights(), kRows, kCols);
  const QuantConfig config = config_of(quantization_config(WeightFormat::kGptq));
  std::vector<StoredTensor> tensors = stored(gptq);
  tensors.erase(tensors.begin() + 2);
  CHECK_THROWS_WITH(join_quantized(tensors, config, "dir"), Contains("dir: the tensor 'a.scales' is missing"));
  tensors = stored(gptq);
  tensors[1].shape = {kCols / 128, 4};
  CHECK_THROWS_WITH(join_quantized(tensors, config, "dir"),
                    Contains("'a.qzeros' has the shape [3, 4] and not [3, 20]"));
  FormattedWeight uneven = gptq;
  std::memset(uneven.tensors[3].data.data(), 0, uneven.tensors[3].data.size());
  CHECK_THROWS_WITH(join_quantized(stored(uneven), config, "dir"),
                    Contains("'a.g_idx' does not put 128 input features into each group"));
}

TEST_CASE("Weights of eight bits that would not be exact are refused by name", "[hf][quantized]") {
  const QuantConfig config = config_of(quantization_config(WeightFormat::kGptq8));
  FormattedWeight gptq = format_weight(WeightFormat::kGptq8, "a", some_weights(), kRows, kCols);
  gptq.tensors[1].data[5] = std::byte{3};
  CHECK_THROWS_WITH(join_quantized(stored(gptq), config, "dir"), Contains("a zero beside their middle"));
  FormattedWeight bytes = format_weight(WeightFormat::kBytes, "a", some_weights(), kRows, kCols);
  const std::vector<float> scales(kRows, 0.1F);
  const auto data = std::as_bytes(std::span(scales));
  bytes.tensors[1] = {"a.weight_scale", "F32", {kRows, 1}, {data.begin(), data.end()}};
  CHECK_THROWS_WITH(join_quantized(stored(bytes), config_of(quantization_config(WeightFormat::kBytes)), "dir"),
                    Contains("which a 16-bit float does not hold"));
}

TEST_CASE("The quantisation that a file beside the configuration states counts", "[hf][quantized]") {
  const nlohmann::json file = {
      {"producer", {{"name", "modelopt"}}},
      {"quantization", {{"quant_algo", "NVFP4"}, {"group_size", 16}, {"kv_cache_quant_algo", "FP8"}}}};
  CHECK(read_separate_quant_config(file, "hf_quant_config.json").method == QuantConfig::Method::kNvfp4);
  const nlohmann::json other = {{"quantization", {{"quant_algo", "W4A8_AWQ"}}}};
  CHECK_THROWS_WITH(read_separate_quant_config(other, "hf_quant_config.json"), Contains("W4A8_AWQ"));
}
