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

void Transformer::Activation::reserve(std::int64_t count) {
  if (count <= capacity_) return;
  buffer_.reset();  // the old rows are not needed: free them before the new ones are allocated
  buffer_ = backend_.allocate(count * cols_);
  capacity_ = count;
}

MatrixView Transformer::Activation::rows(std::int64_t count) {
  QUIRE_CHECK(count <= capacity_, "a step keeps within what was reserved for it");
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
      head_input_(backend, config.hidden_size),
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
  return static_cast<std::size_t>(std::min(num_rows, kMaxRows) * per_row + num_rows * config.hidden_size +
                                  num_logit_rows * per_logit_row) *
         sizeof(float);
}

void Transformer::reserve(std::int64_t max_rows, std::int64_t max_logit_rows) {
  for (Activation* of_slice : {&x_, &qkv_, &attended_, &gate_up_, &cos_, &sin_})
    of_slice->reserve(std::min(max_rows, kMaxRows));
  hidden_.reserve(max_rows);
  head_input_.reserve(max_logit_rows);
  logits_.reserve(max_logit_rows);
  const auto most = static_cast<std::size_t>(std::min(max_rows, kMaxRows));
  slice_query_start_.reserve(most + 1);
  slice_context_len_.reserve(most);
  slice_wanted_.reserve(most);
}

ModelOutput Transformer::forward(const StepArrays& arrays, KvStorage& kv) {
  const std::int64_t num_rows = arrays.num_rows();
  QUIRE_CHECK(std::ssize(arrays.positions) == num_rows * arrays.positions_per_row &&
                  std::ssize(arrays.attention.slots) == num_rows,
              "a step's arrays have one element for each row");
  const std::int64_t slice_rows = arrays.slice_rows > 0 ? std::min(arrays.slice_rows, kMaxRows) : kMaxRows;
  MatrixView head_input = head_input_.rows(std::ssize(arrays.logit_rows));
  MatrixView hidden = hidden_.rows(std::ssize(arrays.hidden_rows));
  std::int64_t num_logit_rows = 0;
  std::int64_t num_hidden_rows = 0;
  std::int64_t begin = 0;
  while (begin < num_rows) {
    const Slice slice = cut(arrays, begin, std::min(begin + slice_rows, num_rows));
    const MatrixView x = x_.rows(slice.end - slice.begin);
    embed(arrays, slice, x);
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
      compute_layer(weights_.layers[static_cast<std::size_t>(layer)], layer, slice, x, kv);
    }
    num_logit_rows = collect(arrays.logit_rows, slice, x, head_input);
    num_hidden_rows = collect(arrays.hidden_rows, slice, x, hidden);
    begin = slice.end;
    if (arrays.interrupt != nullptr && arrays.interrupt->load(std::memory_order_relaxed)) break;
  }
  head_input.rows = num_logit_rows;
  hidden.rows = num_hidden_rows;
  const float* const norm = weights_.final_norm->data();
  const MatrixView logits = logits_.rows(num_logit_rows);
  if (num_logit_rows > 0) backend_.linear(*weights_.head, normed(head_input, norm, eps_), logits, false);
  if (num_hidden_rows > 0) backend_.rms_norm(hidden, norm, eps_, hidden);
  return {.num_rows = begin, .logits = logits, .hidden = hidden};
}

void Transformer::embed(const StepArrays& arrays, const Slice& slice, MatrixView x) {
  backend_.embed(*weights_.embedding,
                 arrays.token_ids.subspan(static_cast<std::size_t>(slice.begin), static_cast<std::size_t>(x.rows)), x);
  const auto first = std::ranges::lower_bound(arrays.embedding_rows, slice.begin);
  for (auto row = first; row != arrays.embedding_rows.end() && *row < slice.end; ++row) {
    const auto index = static_cast<std::int32_t>(row - arrays.embedding_rows.begin());
    backend_.gather_rows(arrays.embeddings, {&index, 1}, row_range(x, *row - slice.begin, 1));
  }
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
Transformer::Slice Transformer::cut(const StepArrays& arrays, std::int64_t begin, std::int64_t end) {
  const AttentionBatch& whole = arrays.attention;
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
  backend_.rope_angles(arrays.positions.subspan(at(begin), at(end - begin)), rope_.inv_freq, rope_.scale, slice.cos,
                       slice.sin);
  return slice;
}

std::int64_t Transformer::collect(std::span<const std::int32_t> wanted, const Slice& slice, MatrixView x,
                                  MatrixView out) {
  const auto first = std::ranges::lower_bound(wanted, slice.begin);
  slice_wanted_.clear();
  for (auto row = first; row != wanted.end() && *row < slice.end; ++row) {
    slice_wanted_.push_back(static_cast<std::int32_t>(*row - slice.begin));
  }
  const std::int64_t num_before = first - wanted.begin();
  const auto num_rows = std::ssize(slice_wanted_);
  if (num_rows > 0) backend_.gather_rows(x, slice_wanted_, row_range(out, num_before, num_rows));
  return num_before + num_rows;
}

}  // namespace quire
