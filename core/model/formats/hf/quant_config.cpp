#include "core/model/formats/hf/quant_config.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "core/base/message_text.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

namespace {

using nlohmann::json;
using Keys = std::span<const std::string_view>;

// Keys that are read, or that do not change results: search for quants, kernels of other engines, modules left
// unquantised (their tensors show it).
constexpr std::string_view kFp8Keys[] = {
    "quant_method",           "activation_scheme", "weight_block_size", "fmt",
    "modules_to_not_convert", "ignored_layers",    "scale_fmt",         "dequantize"};
constexpr std::string_view kPackedKeys[] = {"quant_method",
                                            "format",
                                            "config_groups",
                                            "ignore",
                                            "kv_cache_scheme",
                                            "quantization_status",
                                            "global_compression_ratio",
                                            "version",
                                            "sparsity_config",
                                            "transform_config"};
constexpr std::string_view kGroupKeys[] = {"targets", "weights", "input_activations", "output_activations", "format"};
constexpr std::string_view kWeightKeys[] = {"num_bits",    "type",     "strategy", "group_size",      "symmetric",
                                            "dynamic",     "observer", "actorder", "observer_kwargs", "block_structure",
                                            "scale_dtype", "zp_dtype"};
constexpr std::string_view kGptqKeys[] = {"quant_method",
                                          "bits",
                                          "group_size",
                                          "desc_act",
                                          "sym",
                                          "checkpoint_format",
                                          "damp_percent",
                                          "damp_auto_increment",
                                          "static_groups",
                                          "true_sequential",
                                          "model_name_or_path",
                                          "model_file_base_name",
                                          "is_marlin_format",
                                          "lm_head",
                                          "quantizer",
                                          "meta",
                                          "pack_dtype",
                                          "dataset",
                                          "tokenizer",
                                          "use_exllama",
                                          "exllama_config",
                                          "max_input_length",
                                          "use_cuda_fp16",
                                          "model_seqlen",
                                          "block_name_to_quantize",
                                          "module_name_preceding_first_block",
                                          "batch_size",
                                          "pad_token_id",
                                          "cache_block_outputs",
                                          "modules_in_block_to_quantize",
                                          "backend",
                                          "dynamic"};
constexpr std::string_view kAwqKeys[] = {"quant_method",
                                         "bits",
                                         "w_bit",
                                         "group_size",
                                         "q_group_size",
                                         "version",
                                         "zero_point",
                                         "modules_to_not_convert",
                                         "backend",
                                         "do_fuse",
                                         "fuse_max_seq_len",
                                         "modules_to_fuse",
                                         "exllama_config"};
constexpr std::string_view kModelOptKeys[] = {"quant_method",   "quant_algo", "kv_cache_quant_algo", "kv_cache_scheme",
                                              "group_size",     "ignore",     "exclude_modules",     "config_groups",
                                              "has_zero_point", "producer"};
constexpr std::string_view kMxfp4Keys[] = {"quant_method", "modules_to_not_convert", "dequantize"};

void refuse_others(const json& object, const JsonObject& named, Keys known) {
  for (const auto& [key, value] : object.items()) {
    if (!value.is_null() && std::ranges::find(known, key) == known.end())
      named.fail(fmt::format("the key '{}' is not supported", printable(key)));
  }
}

// Refuses the key unless its object or array is empty.
void refuse_content(const JsonObject& object, const char* key) {
  const json* value = object.find(key);
  if (value != nullptr && !value->empty()) object.fail(fmt::format("'{}' is not supported", key));
}

void require_text(const JsonObject& object, const char* key, std::string_view wanted) {
  if (const auto text = object.text(key); text && *text != wanted)
    object.fail(fmt::format("'{}' is '{}'; only '{}' is supported", key, printable(*text), wanted));
}

int read_bits(const JsonObject& object, const char* key, std::initializer_list<std::int64_t> known) {
  const std::int64_t bits = object.required_integer(key);
  if (std::ranges::find(known, bits) == known.end())
    object.fail(fmt::format("'{}' is {}; only {} is supported", key, bits, fmt::join(known, ", ")));
  return static_cast<int>(bits);
}

std::int64_t read_group_size(const JsonObject& object, const char* key) {
  const std::int64_t size = object.integer(key).value_or(-1);
  if (size != -1 && (size <= 0 || size % 32 != 0))
    object.fail(fmt::format("'{}' is {}; only -1 and multiples of 32 are supported", key, size));
  return size;
}

void read_block_size(const JsonObject& object, const char* key, QuantConfig& out) {
  const json* size = object.find(key);
  if (size == nullptr) return;
  const auto is_count = [](const json& value) { return value.is_number_integer() && value.get<std::int64_t>() > 0; };
  if (!size->is_array() || size->size() != 2 || !std::ranges::all_of(*size, is_count))
    object.fail(fmt::format("'{}' is no pair of counts", key));
  out.block_rows = (*size)[0].get<std::int64_t>();
  out.block_cols = (*size)[1].get<std::int64_t>();
  if (out.block_cols % 128 != 0) object.fail(fmt::format("'{}' has a width that is no multiple of 128", key));
}

// Activations stay more precise than 8-bit floats, so a scheme for them does not matter.
QuantConfig read_fp8(const json& config, const JsonObject& object) {
  refuse_others(config, object, kFp8Keys);
  require_text(object, "fmt", "e4m3");
  QuantConfig out{.method = QuantConfig::Method::kFp8};
  read_block_size(object, "weight_block_size", out);
  return out;
}

QuantConfig read_weights(const JsonObject& weights) {
  const std::string type = weights.text("type").value_or("int");
  const std::string strategy = weights.text("strategy").value_or("");
  const std::int64_t bits = weights.required_integer("num_bits");
  QuantConfig out;
  if (type == "float" && bits == 8 && (strategy == "channel" || strategy == "tensor" || strategy == "block")) {
    out.method = QuantConfig::Method::kFp8;
    if (strategy == "block") read_block_size(weights, "block_structure", out);
  } else if (type == "int" && (bits == 4 || bits == 8) &&
             (strategy == "group" || strategy == "channel" || (strategy == "tensor" && bits == 8))) {
    out.method = QuantConfig::Method::kPacked;
    out.bits = static_cast<int>(bits);
    out.group_size = strategy == "group" ? read_group_size(weights, "group_size") : -1;
  } else if (type == "float" && bits == 4 && strategy == "tensor_group") {
    out.method = QuantConfig::Method::kNvfp4;
    if (const std::int64_t size = weights.integer("group_size").value_or(16); size != 16)
      weights.fail(fmt::format("'group_size' is {}; only 16 is supported", size));
  } else {
    weights.fail(fmt::format("weights of {} bits of type '{}' by '{}' are not supported", bits, printable(type),
                             printable(strategy)));
  }
  return out;
}

QuantConfig read_compressed_tensors(const json& config, const JsonObject& object) {
  refuse_others(config, object, kPackedKeys);
  refuse_content(object, "transform_config");
  if (const auto sparsity = object.object("sparsity_config")) require_text(*sparsity, "format", "dense");
  const json* groups = object.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->size() != 1)
    object.fail("'config_groups' is not one group; only one is supported");
  const json::const_iterator only = groups->begin();
  const std::string& name = only.key();
  const json& group = *only;
  const JsonObject named(group, "quantization_config: " + printable(name));
  if (!group.is_object()) object.fail("'config_groups' holds no object");
  refuse_others(group, named, kGroupKeys);
  refuse_content(named, "output_activations");
  const auto weights = named.object("weights");
  if (!weights) named.fail("'weights' is missing");
  refuse_others(*named.find("weights"), *weights, kWeightKeys);
  const QuantConfig out = read_weights(*weights);
  std::string_view format = out.bits == 8 ? "int-quantized" : "pack-quantized";
  if (out.method == QuantConfig::Method::kFp8) format = "float-quantized";
  if (out.method == QuantConfig::Method::kNvfp4) format = "nvfp4-pack-quantized";
  const bool is_packed_bytes = out.bits == 8 && object.text("format") == "pack-quantized";
  if (!is_packed_bytes) require_text(object, "format", format);
  return out;
}

QuantConfig read_gptq(const json& config, const JsonObject& object) {
  refuse_others(config, object, kGptqKeys);
  refuse_content(object, "dynamic");
  const int bits = read_bits(object, "bits", {2, 3, 4, 8});
  require_text(object, "pack_dtype", "int32");
  if (object.boolean("is_marlin_format").value_or(false)) object.fail("'is_marlin_format' is not supported");
  const std::string format = object.text("checkpoint_format").value_or("gptq");
  if (format != "gptq" && format != "gptq_v2")
    object.fail(fmt::format("the checkpoint_format '{}' is not supported (gptq, gptq_v2)", printable(format)));
  return {.method = QuantConfig::Method::kGptq,
          .bits = bits,
          .group_size = read_group_size(object, "group_size"),
          .zeros_less_one = format == "gptq"};
}

QuantConfig read_awq(const json& config, const JsonObject& object) {
  refuse_others(config, object, kAwqKeys);
  read_bits(object, object.has("bits") ? "bits" : "w_bit", {4});
  const std::string version = object.text("version").value_or("gemm");
  if (version != "gemm" && version != "GEMM")
    object.fail(fmt::format("the version '{}' is not supported (gemm)", printable(version)));
  return {.method = QuantConfig::Method::kAwq,
          .group_size = read_group_size(object, object.has("group_size") ? "group_size" : "q_group_size")};
}

// Reads NVIDIA's Model Optimizer's form. Its cache type is ignored: the cache has the configured type.
QuantConfig read_modelopt(const json& config, const JsonObject& object) {
  refuse_others(config, object, kModelOptKeys);
  const std::string algorithm = object.text("quant_algo").value_or("");
  if (object.boolean("has_zero_point").value_or(false)) object.fail("'has_zero_point' is not supported");
  if (algorithm == "FP8") return {.method = QuantConfig::Method::kFp8};
  if (algorithm != "NVFP4")
    object.fail(fmt::format("the quant_algo '{}' is not supported (NVFP4, FP8)", printable(algorithm)));
  if (const std::int64_t size = object.integer("group_size").value_or(16); size != 16)
    object.fail(fmt::format("'group_size' is {}; only 16 is supported", size));
  return {.method = QuantConfig::Method::kNvfp4};
}

}  // namespace

QuantConfig read_separate_quant_config(const json& file, const std::string& where) {
  const JsonObject object(file, where);
  const auto quantization = object.object("quantization");
  if (!quantization) object.fail("'quantization' is missing");
  if (!quantization->text("quant_algo")) return {};
  return read_modelopt(*object.find("quantization"), *quantization);
}

QuantConfig read_quant_config(const json& config, const std::string& where) {
  const JsonObject model(config, where);
  const char* key = model.has("quantization_config") ? "quantization_config" : "compression_config";
  const json* found = model.find(key);
  if (found == nullptr) return {};
  if (!found->is_object()) model.fail(fmt::format("'{}' is no object", key));
  const JsonObject object(*found, where + ": " + key);
  const std::string method = object.text("quant_method").value_or("");
  if (method == "fp8") return read_fp8(*found, object);
  if (method == "compressed-tensors") return read_compressed_tensors(*found, object);
  if (method == "modelopt" || method == "modelopt_fp4") return read_modelopt(*found, object);
  if (method == "gptq") return read_gptq(*found, object);
  if (method == "awq") return read_awq(*found, object);
  if (method == "mxfp4") {
    refuse_others(*found, object, kMxfp4Keys);
    return {.method = QuantConfig::Method::kMxfp4};
  }
  object.fail(
      fmt::format("the quant_method '{}' is not supported (fp8, compressed-tensors, gptq, awq, mxfp4, modelopt)",
                  printable(method)));
}

}  // namespace quire
