#include "core/model/transformer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "kernels/check.h"

namespace quire {

namespace {

MatrixView columns(MatrixView view, std::int64_t begin, std::int64_t count) {
  return {.data = view.data + begin, .rows = view.rows, .cols = count, .stride = view.stride};
}

MatrixView row_range(MatrixView view, std::int64_t begin, std::int64_t count) {
  return {.data = view.data + begin * view.stride, .rows = count, .cols = view.cols, .stride = view.stride};
}

std::unique_ptr<Buffer> upload_or_null(Backend& backend, const std::vector<float>& values) {
  return values.empty() ? nullptr : backend.upload(values);
}

}  // namespace

TransformerWeights pack_weights(const WeightSources& sources, Backend& backend,
                                const std::function<void(const WeightSource&)>& packed, const PackedWeights* cached,
                                PackedWriter* writer) {
  std::size_t num_loaded = 0;
  const auto load = [&](const LinearSource& source) {
    std::unique_ptr<Linear> linear;
    if (cached != nullptr) linear = backend.adopt_linear(source.parts, source.bias, (*cached)[num_loaded++]);
    if (linear == nullptr) linear = backend.load_linear(source.parts, source.bias);
    if (writer != nullptr) writer->add(linear->packed());
    for (const WeightSource& part : source.parts)
      packed(part);
    return linear;
  };
  TransformerWeights out;
  out.embedding = backend.load_embedding(sources.embedding);
  for (const LayerSources& layer : sources.layers) {
    TransformerLayer& to = out.layers.emplace_back();
    to.attention_norm = backend.upload(layer.attention_norm);
    to.qkv = load(layer.qkv);
    to.query_norm = upload_or_null(backend, layer.query_norm);
    to.key_norm = upload_or_null(backend, layer.key_norm);
    to.attention_output = load(layer.attention_output);
    to.ffn_norm = backend.upload(layer.ffn_norm);
    to.gate_up = load(layer.gate_up);
    to.ffn_down = load(layer.ffn_down);
  }
  out.final_norm = backend.upload(sources.final_norm);
  out.head = load({.parts = {sources.head}, .bias = {}});
  return out;
}

std::size_t num_products(const WeightSources& sources) {
  return 4 * sources.layers.size() + 1;
}

MatrixView Transformer::Activation::rows(std::int64_t count) {
  if (count > capacity_) {
    buffer_.reset();  // the old rows are not needed: free them before the new ones are allocated
    // A power of two: batches that grow by one row at a time seldom allocate.
    capacity_ = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count)));
    buffer_ = backend_.allocate(capacity_ * cols_);
  }
  return {.data = buffer_ == nullptr ? nullptr : buffer_->data(), .rows = count, .cols = cols_, .stride = cols_};
}

Transformer::Transformer(const ModelConfig& config, TransformerWeights weights, Backend& backend,
                         std::shared_ptr<const void> sources_owner)
    : config_(config),
      weights_(std::move(weights)),
      backend_(backend),
      sources_owner_(std::move(sources_owner)),
      rope_(rope_frequencies(config.rope)),
      query_size_(config.num_heads * config.head_dim),
      kv_size_(config.num_kv_heads * config.head_dim),
      eps_(static_cast<float>(config.rms_eps)),
      x_(backend, config.hidden_size),
      qkv_(backend, query_size_ + 2 * kv_size_),
      attended_(backend, query_size_),
      gate_up_(backend, 2 * config.ffn_size),
      cos_(backend, config.rope.rotary_dim / 2),
      sin_(backend, config.rope.rotary_dim / 2),
      hidden_(backend, config.hidden_size),
      logits_(backend, config.vocab_size) {}

KvLayout Transformer::kv_layout() const {
  KvLayout layout;
  layout.num_layers = config_.num_layers;
  layout.num_kv_heads = config_.num_kv_heads;
  layout.head_dim = config_.head_dim;
  return layout;
}

std::size_t Transformer::activation_bytes(const ModelConfig& config, std::int64_t num_rows,
                                          std::int64_t num_logit_rows) {
  const std::int64_t query_size = config.num_heads * config.head_dim;
  const std::int64_t qkv_size = query_size + 2 * config.num_kv_heads * config.head_dim;
  const std::int64_t per_row =
      config.hidden_size + qkv_size + query_size + 2 * config.ffn_size + config.rope.rotary_dim;
  const std::int64_t per_logit_row = config.hidden_size + config.vocab_size;
  const auto rounded = [](std::int64_t rows) { return std::bit_ceil(static_cast<std::uint64_t>(rows)); };
  return (rounded(std::min(num_rows, kMaxRows)) * static_cast<std::uint64_t>(per_row) +
          rounded(num_logit_rows) * static_cast<std::uint64_t>(per_logit_row)) *
         sizeof(float);
}

MatrixView Transformer::forward(const ModelInput& input, KvStorage& kv) {
  const MatrixView hidden = logit_rows(input, kv);
  const MatrixView logits = logits_.rows(hidden.rows);
  if (hidden.rows > 0)
    backend_.linear(*weights_.head, normed(hidden, weights_.final_norm->data(), eps_), logits, false);
  backend_.synchronize();
  return logits;
}

MatrixView Transformer::forward_hidden(const ModelInput& input, KvStorage& kv) {
  const MatrixView hidden = logit_rows(input, kv);
  if (hidden.rows > 0) backend_.rms_norm(hidden, weights_.final_norm->data(), eps_, hidden);
  backend_.synchronize();
  return hidden;
}

MatrixView Transformer::logit_rows(const ModelInput& input, KvStorage& kv) {
  const auto num_rows = std::ssize(input.token_ids);
  QUIRE_CHECK(std::ssize(input.positions) == num_rows && std::ssize(input.attention.slots) == num_rows,
              "a step's arrays have one element for each row");
  const MatrixView hidden = hidden_.rows(std::ssize(input.logit_rows));
  for (std::int64_t begin = 0; begin < num_rows; begin += kMaxRows) {
    const Slice slice = cut(input, begin, std::min(begin + kMaxRows, num_rows));
    const MatrixView x = x_.rows(slice.end - slice.begin);
    backend_.embed(*weights_.embedding,
                   input.token_ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(x.rows)), x);
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
      compute_layer(weights_.layers[static_cast<std::size_t>(layer)], layer, slice, x, kv);
    }
    collect_logit_rows(input, slice, x, hidden);
  }
  return hidden;
}

void Transformer::compute_layer(const TransformerLayer& weights, std::int64_t layer, const Slice& slice, MatrixView x,
                                KvStorage& kv) {
  const auto num_heads = config_.num_heads;
  const auto num_kv_heads = config_.num_kv_heads;
  const auto head_dim = config_.head_dim;
  const auto style = config_.rope.style;
  const MatrixView qkv = qkv_.rows(x.rows);
  const MatrixView q = columns(qkv, 0, query_size_);
  const MatrixView q_and_k = columns(qkv, 0, query_size_ + kv_size_);
  const MatrixView k = columns(qkv, query_size_, kv_size_);
  const MatrixView v = columns(qkv, query_size_ + kv_size_, kv_size_);
  const MatrixView attended = attended_.rows(x.rows);
  const MatrixView gate_up = gate_up_.rows(x.rows);

  backend_.linear(*weights.qkv, normed(x, weights.attention_norm->data(), eps_), qkv, false);
  if (config_.has_qk_norm) {
    backend_.head_rms_norm(q, num_heads, head_dim, weights.query_norm->data(), eps_);
    backend_.head_rms_norm(k, num_kv_heads, head_dim, weights.key_norm->data(), eps_);
  }
  backend_.rope(q_and_k, num_heads + num_kv_heads, head_dim, style, slice.cos, slice.sin);
  backend_.store_kv(kv, layer, slice.attention, k, v);
  const auto attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  backend_.attention(kv, layer, slice.attention, q, num_heads, attention_scale, attended);
  backend_.linear(*weights.attention_output, attended, x, true);

  backend_.linear(*weights.gate_up, normed(x, weights.ffn_norm->data(), eps_), gate_up, false);
  backend_.linear(*weights.ffn_down, gated(gate_up), x, true);
}

// A slice is what a smaller token budget would have made a step of its own: its last sequence may be cut short.
Transformer::Slice Transformer::cut(const ModelInput& input, std::int64_t begin, std::int64_t end) {
  const AttentionBatch& whole = input.attention;
  const auto num_sequences = std::ssize(whole.context_len);
  const auto at = [](std::int64_t index) { return static_cast<std::size_t>(index); };
  std::int64_t first = 0;
  while (whole.query_start[at(first + 1)] <= begin)
    ++first;
  slice_query_start_.assign(1, 0);
  slice_context_len_.clear();
  std::int64_t sequence = first;
  for (; sequence < num_sequences && whole.query_start[at(sequence)] < end; ++sequence) {
    const std::int64_t last = std::min<std::int64_t>(whole.query_start[at(sequence + 1)], end);
    const std::int64_t rows_after = whole.query_start[at(sequence + 1)] - last;
    slice_query_start_.push_back(static_cast<std::int32_t>(last - begin));
    slice_context_len_.push_back(static_cast<std::int32_t>(whole.context_len[at(sequence)] - rows_after));
  }
  Slice slice{
      .begin = begin, .end = end, .attention = {}, .cos = cos_.rows(end - begin), .sin = sin_.rows(end - begin)};
  slice.attention = {.query_start = slice_query_start_,
                     .context_len = slice_context_len_,
                     .block_table_start = whole.block_table_start.subspan(at(first), at(sequence - first + 1)),
                     .block_tables = whole.block_tables,
                     .slots = whole.slots.subspan(at(begin), at(end - begin))};
  backend_.rope_angles(input.positions.subspan(at(begin), at(end - begin)), rope_.inv_freq, rope_.scale, slice.cos,
                       slice.sin);
  return slice;
}

void Transformer::collect_logit_rows(const ModelInput& input, const Slice& slice, MatrixView x, MatrixView out) {
  const auto first = std::ranges::lower_bound(input.logit_rows, slice.begin);
  slice_logit_rows_.clear();
  for (auto row = first; row != input.logit_rows.end() && *row < slice.end; ++row) {
    slice_logit_rows_.push_back(static_cast<std::int32_t>(*row - slice.begin));
  }
  if (slice_logit_rows_.empty()) return;
  const auto num_rows = std::ssize(slice_logit_rows_);
  backend_.gather_rows(x, slice_logit_rows_, row_range(out, first - input.logit_rows.begin(), num_rows));
}

}  // namespace quire
