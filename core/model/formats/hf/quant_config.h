// QuantConfig: the quantization_config of a Hugging Face model, as it applies to the weights. Immutable; any thread.
// Sources: the transformers library's configuration classes, the compressed-tensors, GPTQ and AutoAWQ formats.
// Invariant: keys and values that would change results are refused by one line, never ignored.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace quire {

struct QuantConfig {
  enum class Method : std::uint8_t {
    kNone,
    kFp8,     // E4M3: weight with weight_scale_inv or weight_scale
    kPacked,  // compressed-tensors: weight_packed or weight of bytes, weight_scale, weight_zero_point, weight_g_idx
    kGptq,    // qweight, qzeros, scales, g_idx
    kAwq,     // qweight, qzeros, scales, interleaved
    kMxfp4,   // *_blocks, *_scales
    kNvfp4,   // weight_packed or weight, weight_scale, weight_global_scale or weight_scale_2; FP8 beside it
  };
  Method method = Method::kNone;
  int bits = 4;                  // kPacked, kGptq, kAwq
  std::int64_t group_size = -1;  // kPacked, kGptq, kAwq; -1: a whole row
  std::int64_t block_rows = 0;   // kFp8: rows and columns that share a scale; 0: by the scale's shape
  std::int64_t block_cols = 0;
  bool zeros_less_one = false;  // kGptq: stored zeros count from one
};

// From config.json's object; kNone if it has no quantization_config. Throws StartupError.
QuantConfig read_quant_config(const nlohmann::json& config, const std::string& where);
// From the object in hf_quant_config.json, a separate file of NVIDIA's older models.
QuantConfig read_separate_quant_config(const nlohmann::json& file, const std::string& where);

}  // namespace quire
