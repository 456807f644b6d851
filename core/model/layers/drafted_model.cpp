#include "core/model/layers/drafted_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/model/parts/views.h"

namespace quire {

namespace {

KvLayout joined_layers(const KvLayout& first, const KvLayout& second, bool keeps_second) {
  KvLayout both = first;
  both.num_layers = first.num_layers + second.num_layers;
  both.layers.clear();
  for (std::int64_t layer = 0; layer < first.num_layers; ++layer)
    both.layers.push_back(first.shape(layer));
  for (std::int64_t layer = 0; layer < second.num_layers; ++layer)
    both.layers.push_back(keeps_second ? second.shape(layer) : KvLayerShape{});
  return both;
}

// Most tokens at the end that only one vocabulary has: sizes of a family are padded differently.
constexpr std::int32_t kMostPadding = 256;

// The first token that differs; nothing if all are equal, except the padding of the larger vocabulary.
std::optional<std::int32_t> first_difference(const Tokenizer& a, const Tokenizer& b) {
  const std::int32_t both = std::min(a.vocab_size(), b.vocab_size());
  for (std::int32_t id = 0; id < both; ++id) {
    if (a.token_bytes(TokenId{id}) != b.token_bytes(TokenId{id})) return id;
  }
  return std::max(a.vocab_size(), b.vocab_size()) - both > kMostPadding ? std::optional(both) : std::nullopt;
}

}  // namespace

DraftedModel::DraftedModel(std::unique_ptr<Model> model, std::unique_ptr<Model> drafter, Backend& backend)
    : model_(std::move(model)), drafter_(std::move(drafter)), backend_(backend) {}

void DraftedModel::reserve(std::int64_t max_rows, std::int64_t max_logit_rows) {
  model_->reserve(max_rows, max_logit_rows);
  const std::int64_t num_predicted = std::min(max_logit_rows, kMostDraftedSequences);
  drafter_->reserve(kMostDraftRows, num_predicted);
  ids_.reserve(static_cast<std::size_t>(kMostDraftRows));
  const std::int64_t num_lacking = vocab_size() - drafter_->vocab_size();
  if (num_lacking <= 0) return;
  const auto impossible = -std::numeric_limits<float>::infinity();
  lacking_ = backend_.upload(std::vector<float>(static_cast<std::size_t>(num_lacking), impossible));
  widened_ = backend_.allocate(num_predicted * vocab_size());
}

MatrixView DraftedModel::draft(const DraftArrays& arrays, KvStorage& kv) {
  const auto num_ids = static_cast<std::int32_t>(drafter_->vocab_size());
  ids_.clear();
  for (const std::int32_t id : arrays.token_ids)
    ids_.push_back(id < num_ids ? id : 0);
  StepArrays own;
  own.token_ids = ids_;
  own.positions = arrays.positions;
  own.attention = arrays.attention;
  own.logit_rows = arrays.logit_rows;
  own.vocabulary = arrays.vocabulary;
  MatrixView logits = drafter_->forward(own, kv).logits;
  const std::int64_t width = vocab_size();
  if (logits.cols >= width || logits.rows == 0) {
    logits.cols = std::min(logits.cols, width);
    return logits;
  }
  const MatrixView out{widened_->data(), logits.rows, width, width};
  const MatrixView lacking{lacking_->data(), logits.rows, width - logits.cols, 0};  // a single row, read for all
  GraphOps& graph = *backend_.graph();
  graph.copy(logits, columns(out, 0, logits.cols));
  graph.copy(lacking, columns(out, logits.cols, lacking.cols));
  return out;
}

KvLayout DraftedModel::kv_layout() const {
  return with_drafter(model_->kv_layout(), drafter_->kv_layout());
}

KvSplit DraftedModel::kv_split() const {
  return with_drafter(model_->kv_split(), drafter_->kv_layout());
}

KvLayout with_drafter(const KvLayout& model, const KvLayout& drafter) {
  return joined_layers(model, drafter, true);
}

KvSplit with_drafter(const KvSplit& model, const KvLayout& drafter) {
  KvSplit split = model;
  if (split.window == 0) return split;
  split.full = joined_layers(split.full, drafter, true);
  split.windowed = joined_layers(split.windowed, drafter, false);
  return split;
}

std::string why_not_drafter(const LoadedModel& model, const LoadedModel& drafter) {
  const ModelInfo& info = drafter.info();
  if (!model.info().has_head || !model.info().is_causal) return "the model that it is to draft for generates no text";
  if (!info.has_head || !info.is_causal) return "it generates no text";
  if (info.state_floats > 0) return "its recurrent layers cannot go back behind a draft that is wrong";
  const Tokenizer& tokens = *model.tokenizer();
  const Tokenizer& drafted = *drafter.tokenizer();
  const std::optional<std::int32_t> different = first_difference(tokens, drafted);
  if (!different) return "";
  return fmt::format("its vocabulary is another one: {} tokens, and {} of the model; they differ from token {} on",
                     drafted.vocab_size(), tokens.vocab_size(), *different);
}

std::shared_ptr<const LoadedModel> open_drafter(const LoadedModel& model, const std::filesystem::path& path,
                                                const std::filesystem::path& drafter, bool ignore_unknown_keys) {
  if (drafter.empty()) return nullptr;
  auto opened = open_model(drafter, true, {.ignore_unknown_keys = ignore_unknown_keys});
  const std::string why = why_not_drafter(model, *opened);
  if (why.empty()) return opened;
  throw StartupError(fmt::format("{}: cannot draft for {}: {}; leave speculation.draft_model out or name another model",
                                 drafter.string(), path.string(), why));
}

std::unique_ptr<Model> build_with_drafter(const LoadedModel& model, const LoadedModel& drafter, Backend& backend,
                                          const std::function<void(std::uint64_t, std::uint64_t)>& progress,
                                          const PackedCacheOptions& cache, const PackedCacheOptions& drafter_cache) {
  std::unique_ptr<Model> large = model.build(backend, progress, cache);
  std::unique_ptr<Model> small = drafter.build(backend, progress, drafter_cache, large->kv_layout().num_layers);
  return std::make_unique<DraftedModel>(std::move(large), std::move(small), backend);
}

}  // namespace quire
