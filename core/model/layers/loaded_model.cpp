#include "core/model/layers/loaded_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/log.h"
#include "core/base/result.h"
#include "core/model/layers/checkpoint.h"
#include "core/model/layers/packed_cache.h"
#include "core/model/layers/parallel_model.h"
#include "core/model/layers/rank_parts.h"
#include "core/model/layers/transformer.h"
#include "core/model/parts/model_spec.h"
#include "core/model/parts/parts.h"

namespace quire {

namespace {

// Calls visit for every packed matrix, including the head's tied copy, which is packed beside the embedding that it is
// read from.
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

ModelInfo info_of(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.spec.config;
  const WeightSources& weights = checkpoint.weights;
  ModelInfo info;
  info.architecture = config.architecture;
  info.name = checkpoint.name;
  info.file_bytes = checkpoint.file_bytes;
  info.max_context = config.max_context;
  info.vocab_size = config.vocab_size;
  info.hidden_size = config.hidden_size;
  info.per_layer_size = checkpoint.spec.per_layer_size;
  info.positions_per_row = positions_per_row(checkpoint.spec);
  info.pooling = checkpoint.spec.is_causal ? Pooling::kLast : Pooling::kMean;
  if (checkpoint.pooling != Pooling::kNone) info.pooling = checkpoint.pooling;
  info.kv_layout = kv_layout_of(checkpoint.spec);
  info.kv_split = kv_split_of(checkpoint.spec);
  info.kv_groups = kv_groups_of(checkpoint.spec);
  info.state_floats = state_floats(checkpoint.spec);
  info.num_labels = checkpoint.spec.num_labels;
  info.is_causal = checkpoint.spec.is_causal;
  info.has_head = checkpoint.spec.has_head;
  info.has_next_tokens = checkpoint.spec.next_tokens.has_value();
  info.parts_left_out = checkpoint.parts_left_out;
  info.warnings = checkpoint.warnings;
  info.num_parameters = weights.num_vector_elements();
  for (const auto& [role, table] : weights.model.rows) {
    if (role != WeightRole::kTokenEmbedding || !config.tied_head || !info.has_head)
      info.num_parameters += table.rows * table.cols;
  }
  std::array<std::int64_t, kNumWeightTypes> elements_of_type{};
  for_each_matrix(weights, [&](const WeightSource& matrix) {
    info.num_parameters += matrix.rows * matrix.cols;
    elements_of_type.at(static_cast<std::size_t>(matrix.type)) += matrix.rows * matrix.cols;
  });
  const auto most = std::ranges::max_element(elements_of_type) - elements_of_type.begin();
  info.file_type = dtype_info(static_cast<DType>(most)).name;
  return info;
}

}  // namespace

LoadedModel::LoadedModel(Checkpoint checkpoint)
    : checkpoint_(std::make_unique<const Checkpoint>(std::move(checkpoint))), info_(info_of(*checkpoint_)) {}

LoadedModel::~LoadedModel() = default;

std::shared_ptr<const Tokenizer> LoadedModel::tokenizer() const {
  return checkpoint_->tokenizer;
}

const std::string& LoadedModel::chat_template() const {
  return checkpoint_->chat_template;
}

const GenerationDefaults& LoadedModel::generation_defaults() const {
  return checkpoint_->generation;
}

namespace {

std::size_t bytes_of(const WeightSources& weights, const Backend& backend) {
  // Embedding rows are read in the mapped file.
  std::size_t bytes = 0;
  for (const auto& [role, table] : weights.model.rows)
    bytes += source_bytes(table);
  bytes += static_cast<std::size_t>(weights.num_vector_elements()) * sizeof(float);
  for_each_matrix(weights, [&](const WeightSource& matrix) {
    bytes += backend.packed_bytes(matrix.type, matrix.rows, matrix.cols);
  });
  return bytes;
}

}  // namespace

std::size_t LoadedModel::weight_bytes(const Backend& backend, int num_ranks) const {
  std::size_t most = 0;
  for (int rank = 0; rank < num_ranks; ++rank)
    most = std::max(most,
                    bytes_of(part_of_rank(checkpoint_->spec, checkpoint_->weights, rank, num_ranks).weights, backend));
  return most;
}

std::size_t LoadedModel::activation_bytes(std::int64_t num_rows, std::int64_t num_logit_rows, int num_ranks) const {
  if (num_ranks == 1) return Transformer::activation_bytes(checkpoint_->spec, num_rows, num_logit_rows);
  std::size_t most = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const ModelSpec part = part_of_rank(checkpoint_->spec, checkpoint_->weights, rank, num_ranks).spec;
    most = std::max(most, Transformer::activation_bytes(part, num_rows, num_logit_rows));
  }
  return most + Transformer::share_bytes(checkpoint_->spec, num_rows, num_ranks);
}

StepBounds LoadedModel::step_bounds(StepBounds step) const {
  return Transformer::step_bounds(checkpoint_->spec, step);
}

void LoadedModel::require_ranks(int num_ranks) const {
  require_cut(checkpoint_->spec, checkpoint_->weights, num_ranks);
}

std::unique_ptr<Model> LoadedModel::build(Backend& backend,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                          const PackedCacheOptions& cache, std::int64_t first_kv_layer) const {
  const Checkpoint& checkpoint = *checkpoint_;
  ParallelBackend* const parallel = backend.parallel();
  require_abilities(checkpoint.spec, parallel == nullptr ? backend : parallel->rank(0));
  require_ranks(backend.num_ranks());
  std::uint64_t total = 0;
  for_each_matrix(checkpoint.weights, [&](const WeightSource& matrix) { total += source_bytes(matrix); });
  std::uint64_t done = 0;
  const auto packed = [&](const WeightSource& matrix) {
    if (matrix.maker == nullptr) checkpoint.release({matrix.data, source_bytes(matrix)});
    done += source_bytes(matrix);
    if (progress) progress(std::min(done, total), total);  // several ranks pack the same weights
  };
  if (parallel != nullptr) return build_parallel(checkpoint, *parallel, packed, first_kv_layer);
  if (cache.folder.empty() || backend.packing().empty()) {
    PackedModel weights = pack_weights(checkpoint.weights, backend, packed, nullptr, nullptr);
    return std::make_unique<Transformer>(checkpoint.spec, std::move(weights), backend, checkpoint.files,
                                         first_kv_layer);
  }
  const PackedCache files(cache.folder, packed_identity(cache.model, backend.packing()), cache.max_bytes);
  const auto cached = files.open(checkpoint.weights.num_products(), [&] {
    if (progress) progress(0, total);
  });
  std::uint64_t packed_bytes = 0;
  for_each_matrix(checkpoint.weights, [&](const WeightSource& matrix) {
    packed_bytes += backend.packed_bytes(matrix.type, matrix.rows, matrix.cols);
  });
  const auto writer = cached ? nullptr : files.create(packed_bytes);
  if (!cached && !writer)
    report_written(files, fmt::format("they take {} bytes, more than model.packed_cache_bytes", packed_bytes));
  PackedModel weights = pack_weights(checkpoint.weights, backend, packed, cached.get(), writer.get());
  if (writer) report_written(files, writer->finish());
  if (cached) log::info("packed weights are mapped from {}", files.path().string());
  // The packed weights must live as long as the model.
  using Owners = std::pair<std::shared_ptr<const void>, std::shared_ptr<const PackedWeights>>;
  return std::make_unique<Transformer>(checkpoint.spec, std::move(weights), backend,
                                       std::make_shared<Owners>(checkpoint.files, cached), first_kv_layer);
}

std::shared_ptr<const LoadedModel> open_model(const std::filesystem::path& path, bool with_text,
                                              const SpecWishes& wishes) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  return std::make_shared<LoadedModel>(is_directory ? read_hf_checkpoint(path, with_text, wishes)
                                                    : read_gguf_checkpoint(path, with_text, wishes));
}

void require_abilities(const ModelSpec& spec, Backend& backend) {
  const char* lacking = nullptr;
  for (const ModelPart* part : model_parts()) {
    if (lacking == nullptr) lacking = part->lacking(spec, backend);
  }
  if (lacking == nullptr) return;
  throw StartupError(fmt::format("{} does not compute {}, which {} has: set backend.device to cpu", backend.name(),
                                 lacking, spec.config.architecture));
}

void require_cache(const KvLayout& layout, const Backend& backend) {
  if (layout.dtype != KvDType::kI4) return;
  constexpr const char* kInstead = "set kv_cache.dtype to i8";
  if (!backend.has(Ability::kInt4Cache))
    throw StartupError(
        fmt::format("{} keeps no KV cache of the type i4: {}, or backend.device to cpu", backend.name(), kInstead));
  for (std::int64_t layer = 0; layer < layout.num_layers; ++layer) {
    const KvLayerShape shape = layout.shape(layer);
    if (shape.num_heads == 0) continue;
    if (shape.value_dim == 0)
      throw StartupError(fmt::format("a KV cache of the type i4 does not keep latent attention: {}", kInstead));
    if (std::max(shape.key_dim, shape.value_dim) > kMostInt4HeadDim)
      throw StartupError(fmt::format("a KV cache of the type i4 keeps heads of up to {} features, not of {}: {}",
                                     kMostInt4HeadDim, std::max(shape.key_dim, shape.value_dim), kInstead));
  }
}

}  // namespace quire
