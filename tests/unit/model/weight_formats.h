// Weights in the quantised formats of Hugging Face checkpoints, written by their definitions for tests: the tensors of
// the file, and the values that they stand for. Any thread; the same on every run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model/formats/tensor_table.h"

namespace quire::test {

enum class WeightFormat {
  kFp8Block,     // weight_scale_inv per 128 x 128
  kFp8Channel,   // compressed-tensors: weight_scale per output
  kPacked,       // compressed-tensors: groups of 128, symmetric
  kPackedZeros,  // groups of 32, with zeros
  kGptq,         // groups of 128
  kGptqOrder,    // groups of 32, by desc_act
  kAwq,          // groups of 64
  kGptq8,        // eight bits, groups of 128, symmetric
  kGptq3,        // three bits, groups of 64, by desc_act
  kGptq2,        // two bits, groups of 32
  kBytes,        // compressed-tensors: signed bytes, one scale for each output
  kPacked8,      // eight bits in words, groups of 128
  kNvfp4,        // compressed-tensors: divided by a factor of the matrix
  kNvfp4Times,   // Model Optimizer: multiplied by a factor
};
inline constexpr WeightFormat kWeightFormats[] = {
    WeightFormat::kFp8Block, WeightFormat::kFp8Channel, WeightFormat::kPacked, WeightFormat::kPackedZeros,
    WeightFormat::kGptq,     WeightFormat::kGptqOrder,  WeightFormat::kAwq,    WeightFormat::kGptq8,
    WeightFormat::kGptq3,    WeightFormat::kGptq2,      WeightFormat::kBytes,  WeightFormat::kPacked8,
    WeightFormat::kNvfp4,    WeightFormat::kNvfp4Times};

struct RawTensor {
  std::string name;
  std::string dtype;  // safetensors' name of the type
  std::vector<std::int64_t> shape;
  std::vector<std::byte> data;
};

struct FormattedWeight {
  std::vector<RawTensor> tensors;
  std::vector<double> values;  // [rows][cols]
};

// `stem`: the weight's name without ".weight". cols: a multiple of 128.
FormattedWeight format_weight(WeightFormat format, const std::string& stem, const std::vector<float>& weights,
                              std::int64_t rows, std::int64_t cols);

// The quantization_config member of config.json.
nlohmann::json quantization_config(WeightFormat format);

// The tensor as a reader of the file finds it; keeps a view of the data.
StoredTensor stored_tensor(const RawTensor& tensor);

}  // namespace quire::test
