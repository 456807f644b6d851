#include "core/model/loaded_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/log.h"
#include "core/base/result.h"
#include "core/model/architectures/kv_groups.h"
#include "core/model/checkpoint.h"
#include "core/model/layers/transformer.h"
#include "core/model/packed_cache.h"

namespace quire {

namespace {

// Calls visit for every packed matrix, the head's tied copy included: it is packed beside the embedding it is read
// from.
template <class Visit>
void for_each_matrix(const WeightSources& weights, const Visit& visit) {
  weights.for_each_product([&](const LinearSource& product) {
    for (const WeightSource& part : product.parts)
      visit(part);
  });
}

std::size_t source_bytes(const WeightSource& source) {
  return dtype_bytes(source.type, source.rows * source.cols);
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
    std::size_t bytes = 0;
    for (const auto& [role, table] : weights.model.rows)
      bytes += source_bytes(table);
    bytes += static_cast<std::size_t>(weights.num_vector_elements()) * sizeof(float);
    for_each_matrix(weights, [&](const WeightSource& matrix) {
      bytes += backend.packed_bytes(matrix.type, matrix.rows, matrix.cols);
    });
    return bytes;
  }

  std::size_t activation_bytes(std::int64_t num_rows, std::int64_t num_logit_rows) const override {
    return Transformer::activation_bytes(checkpoint_.spec, num_rows, num_logit_rows);
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
      PackedModel weights = pack_weights(checkpoint_.weights, backend, packed, nullptr, nullptr);
      return std::make_unique<Transformer>(checkpoint_.spec, std::move(weights), backend, checkpoint_.files);
    }
    const PackedCache files(cache.folder, packed_identity(checkpoint_.weights, backend.packing(), cache.model_version));
    const auto cached = files.open(checkpoint_.weights.num_products());
    const auto writer = cached ? nullptr : files.create();
    PackedModel weights = pack_weights(checkpoint_.weights, backend, packed, cached.get(), writer.get());
    if (writer) report_written(files, writer->finish());
    if (cached) log::info("packed weights are mapped from {}", files.path().string());
    // The packed weights must live as long as the model.
    using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<const PackedWeights>>;
    return std::make_unique<Transformer>(checkpoint_.spec, std::move(weights), backend,
                                         std::make_shared<Owners>(checkpoint_.files, cached));
  }

 private:
  void fill_info();

  Checkpoint checkpoint_;
  ModelInfo info_;
};

void CheckpointModel::fill_info() {
  const ModelConfig& config = checkpoint_.spec.config;
  const WeightSources& weights = checkpoint_.weights;
  info_.architecture = config.architecture;
  info_.name = checkpoint_.name;
  info_.file_bytes = checkpoint_.file_bytes;
  info_.max_context = config.max_context;
  info_.vocab_size = config.vocab_size;
  info_.hidden_size = config.hidden_size;
  info_.pooling = checkpoint_.spec.is_causal ? Pooling::kLast : Pooling::kMean;
  if (checkpoint_.pooling != Pooling::kNone) info_.pooling = checkpoint_.pooling;
  info_.kv_layout = kv_layout_of(checkpoint_.spec);
  info_.kv_split = kv_split_of(checkpoint_.spec);
  info_.kv_groups = kv_groups_of(checkpoint_.spec);
  info_.state_floats = state_floats(checkpoint_.spec);
  info_.num_labels = checkpoint_.spec.num_labels;
  info_.is_causal = checkpoint_.spec.is_causal;
  info_.has_head = checkpoint_.spec.has_head;
  info_.parts_left_out = checkpoint_.parts_left_out;
  info_.num_parameters = weights.num_vector_elements();
  for (const auto& [role, table] : weights.model.rows) {
    if (role != WeightRole::kTokenEmbedding || !config.tied_head || !info_.has_head)
      info_.num_parameters += table.rows * table.cols;
  }
  std::array<std::int64_t, kNumWeightTypes> elements_of_type{};
  for_each_matrix(weights, [&](const WeightSource& matrix) {
    info_.num_parameters += matrix.rows * matrix.cols;
    elements_of_type.at(static_cast<std::size_t>(matrix.type)) += matrix.rows * matrix.cols;
  });
  const auto most = std::ranges::max_element(elements_of_type) - elements_of_type.begin();
  info_.file_type = dtype_info(static_cast<DType>(most)).name;
}

}  // namespace

std::shared_ptr<const LoadedModel> open_model(const std::filesystem::path& path, bool with_text,
                                              std::int64_t served_context) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  return std::make_shared<CheckpointModel>(is_directory ? read_hf_checkpoint(path, with_text, served_context)
                                                        : read_gguf_checkpoint(path, with_text, served_context));
}

}  // namespace quire
