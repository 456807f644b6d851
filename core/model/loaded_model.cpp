#include "core/model/loaded_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/log.h"
#include "core/base/result.h"
#include "core/model/checkpoint.h"
#include "core/model/packed_cache.h"
#include "core/model/transformer.h"

namespace quire {

namespace {

// Calls visit for every matrix, the head's tied copy included: it is packed beside the embedding it is read from.
template <class Visit>
void for_each_matrix(const WeightSources& weights, const Visit& visit) {
  for (const LayerSources& layer : weights.layers) {
    for (const LinearSource* linear : {&layer.qkv, &layer.attention_output, &layer.gate_up, &layer.ffn_down}) {
      for (const WeightSource& part : linear->parts)
        visit(part);
    }
  }
  visit(weights.head);
}

std::size_t source_bytes(const WeightSource& source) {
  return dtype_bytes(source.type, source.rows * source.cols);
}

std::int64_t num_vector_elements(const WeightSources& weights) {
  std::size_t count = weights.final_norm.size();
  for (const LayerSources& layer : weights.layers) {
    count += layer.attention_norm.size() + layer.ffn_norm.size() + layer.query_norm.size() + layer.key_norm.size() +
             layer.qkv.bias.size() + layer.attention_output.bias.size() + layer.gate_up.bias.size() +
             layer.ffn_down.bias.size();
  }
  return static_cast<std::int64_t>(count);
}

void report_written(const PackedCache& cache, const std::string& error) {
  if (error.empty()) {
    log::info("packed weights are kept in {}", cache.path().string());
  } else {
    log::warn("packed weights cannot be kept in {}: {}", cache.path().string(), error);
  }
}

class CheckpointModel final : public LoadedModel {
 public:
  explicit CheckpointModel(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) { fill_info(); }

  const ModelInfo& info() const override { return info_; }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return checkpoint_.tokenizer; }
  const std::string& chat_template() const override { return checkpoint_.chat_template; }
  const GenerationDefaults& generation_defaults() const override { return checkpoint_.generation; }

  std::size_t weight_bytes(const Backend& backend) const override {
    const WeightSources& weights = checkpoint_.weights;
    // Embedding rows are read where the file is mapped.
    std::size_t bytes = source_bytes(weights.embedding);
    bytes += static_cast<std::size_t>(num_vector_elements(weights)) * sizeof(float);
    for_each_matrix(weights, [&](const WeightSource& matrix) {
      bytes += backend.packed_bytes(matrix.type, matrix.rows, matrix.cols);
    });
    return bytes;
  }

  std::size_t activation_bytes(std::int64_t num_rows, std::int64_t num_logit_rows) const override {
    return Transformer::activation_bytes(checkpoint_.config, num_rows, num_logit_rows);
  }

  std::unique_ptr<Model> build(Backend& backend, const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                               const PackedCacheOptions& cache) const override {
    std::uint64_t total = 0;
    for_each_matrix(checkpoint_.weights, [&](const WeightSource& matrix) { total += source_bytes(matrix); });
    std::uint64_t done = 0;
    const auto packed = [&](const WeightSource& matrix) {
      checkpoint_.release({matrix.data, source_bytes(matrix)});
      done += source_bytes(matrix);
      if (progress) progress(done, total);
    };
    if (cache.folder.empty() || backend.packing().empty()) {
      TransformerWeights weights = pack_weights(checkpoint_.weights, backend, packed, nullptr, nullptr);
      return std::make_unique<Transformer>(checkpoint_.config, std::move(weights), backend, checkpoint_.files);
    }
    const PackedCache files(cache.folder, packed_identity(checkpoint_.weights, backend.packing(), cache.model_version));
    const auto cached = files.open(num_products(checkpoint_.weights));
    const auto writer = cached ? nullptr : files.create();
    TransformerWeights weights = pack_weights(checkpoint_.weights, backend, packed, cached.get(), writer.get());
    if (writer) report_written(files, writer->finish());
    if (cached) log::info("packed weights are mapped from {}", files.path().string());
    // The packed weights must live as long as the model.
    using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<const PackedWeights>>;
    return std::make_unique<Transformer>(checkpoint_.config, std::move(weights), backend,
                                         std::make_shared<Owners>(checkpoint_.files, cached));
  }

 private:
  void fill_info();

  Checkpoint checkpoint_;
  ModelInfo info_;
};

void CheckpointModel::fill_info() {
  const ModelConfig& config = checkpoint_.config;
  const WeightSources& weights = checkpoint_.weights;
  info_.architecture = config.architecture;
  info_.name = checkpoint_.name;
  info_.file_bytes = checkpoint_.file_bytes;
  info_.max_context = config.max_context;
  info_.vocab_size = config.vocab_size;
  info_.hidden_size = config.hidden_size;
  if (checkpoint_.pooling != Pooling::kNone) info_.pooling = checkpoint_.pooling;
  info_.kv_layout.num_layers = config.num_layers;
  info_.kv_layout.num_kv_heads = config.num_kv_heads;
  info_.kv_layout.head_dim = config.head_dim;
  info_.num_parameters = num_vector_elements(weights);
  if (!config.tied_head) info_.num_parameters += weights.embedding.rows * weights.embedding.cols;
  std::array<std::int64_t, kNumWeightTypes> elements_of_type{};
  for_each_matrix(weights, [&](const WeightSource& matrix) {
    info_.num_parameters += matrix.rows * matrix.cols;
    elements_of_type.at(static_cast<std::size_t>(matrix.type)) += matrix.rows * matrix.cols;
  });
  const auto most = std::ranges::max_element(elements_of_type) - elements_of_type.begin();
  info_.file_type = dtype_info(static_cast<DType>(most)).name;
}

}  // namespace

std::shared_ptr<const LoadedModel> open_model(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  return std::make_shared<CheckpointModel>(is_directory ? read_hf_checkpoint(path) : read_gguf_checkpoint(path));
}

}  // namespace quire
