// A model whose every logit depends on every token of its sequence, read back through the block tables: a block that
// was shared, copied, freed or overwritten wrongly changes the output. No arithmetic, no threads. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/layers/model.h"
#include "core/model/parts/adapter.h"
#include "kernels/backend.h"
#include "kernels/device_error.h"
#include "kernels/recurrent_ops.h"

namespace quire::test {

class FakeStorage : public KvStorage {
 public:
  explicit FakeStorage(const KvLayout& layout)
      : layout_(layout),
        tokens(static_cast<std::size_t>(layout.num_blocks * layout.block_size), -1),
        row_tokens(tokens.size(), -1),
        drafter_tokens(tokens.size(), -2) {}

  const KvLayout& layout() const override { return layout_; }
  std::size_t block_bytes() const override {
    return static_cast<std::size_t>(layout_.block_size) * sizeof(std::int32_t);
  }
  void copy_block(std::int32_t source, std::int32_t destination) override {
    std::copy_n(block(source), layout_.block_size, block(destination));
    for (auto* each : {&row_tokens, &drafter_tokens})
      std::copy_n(each->begin() + source * layout_.block_size, layout_.block_size,
                  each->begin() + destination * layout_.block_size);
  }
  void read_block(std::int32_t id, std::span<std::byte> out) const override {
    const auto* first = reinterpret_cast<const std::byte*>(&tokens[offset(id)]);
    std::copy_n(first, out.size(), out.begin());
  }
  void write_block(std::int32_t id, std::span<const std::byte> in) override {
    std::copy_n(in.begin(), in.size(), reinterpret_cast<std::byte*>(&*block(id)));
    std::fill_n(row_tokens.begin() + id * layout_.block_size, layout_.block_size, -1);
    std::fill_n(drafter_tokens.begin() + id * layout_.block_size, layout_.block_size, -3);
  }

 private:
  KvLayout layout_;
  std::size_t offset(std::int32_t id) const { return static_cast<std::size_t>(id * layout_.block_size); }
  std::vector<std::int32_t>::iterator block(std::int32_t id) {
    return tokens.begin() + static_cast<std::ptrdiff_t>(offset(id));
  }

 public:
  std::vector<std::int32_t> tokens;          // by slot: the "keys and values"
  std::vector<std::int32_t> row_tokens;      // by slot: token of the row last computed there, by either model
  std::vector<std::int32_t> drafter_tokens;  // the "keys and values" of a drafting model, which knows no adapters
};

// A state is a hash of all tokens before a place, and their number.
class FakeStates : public StateStorage {
 public:
  struct State {
    std::uint64_t hash = 0;
    std::int64_t num_tokens = 0;
  };
  explicit FakeStates(const StateLayout& layout)
      : states(static_cast<std::size_t>(layout.num_states), State{.num_tokens = -1}), layout_(layout) {}

  const StateLayout& layout() const override { return layout_; }
  std::size_t state_bytes() const override { return sizeof(State); }
  void copy_state(std::int32_t source, std::int32_t destination) override { at(destination) = at(source); }
  void read_state(std::int32_t state, std::span<std::byte> out) const override {
    std::memcpy(out.data(), &states.at(static_cast<std::size_t>(state)), sizeof(State));
  }
  void write_state(std::int32_t state, std::span<const std::byte> in) override {
    std::memcpy(&at(state), in.data(), sizeof(State));
  }
  State& at(std::int32_t state) { return states.at(static_cast<std::size_t>(state)); }

  std::vector<State> states;

 private:
  StateLayout layout_;
};

class FakeRecurrentOps : public RecurrentOps {
 public:
  std::unique_ptr<StateStorage> allocate_states(const StateLayout& layout) override {
    return std::make_unique<FakeStates>(layout);
  }
  void short_conv(const AttentionBatch&, const StatePart&, const ConvArgs&, MatrixView, MatrixView, MatrixView,
                  MatrixView) override {}
  void delta_rule(const AttentionBatch&, const StatePart&, const DeltaArgs&, MatrixView, MatrixView, MatrixView,
                  MatrixView, MatrixView, MatrixView) override {}
  void state_space(const AttentionBatch&, const StatePart&, const StateSpaceArgs&, MatrixView, MatrixView, MatrixView,
                   MatrixView, MatrixView) override {}
  void selective_scan(const AttentionBatch&, const StatePart&, const SelectiveScanArgs&, MatrixView, MatrixView,
                      MatrixView, MatrixView, MatrixView) override {}
  void gated_norm(const GatedNormArgs&, MatrixView, MatrixView) override {}
};

// Implements only the operations that the engine itself calls.
class FakeBackend : public Backend {
 public:
  std::string name() const override { return "fake"; }
  std::unique_ptr<Linear> load_linear(std::span<const WeightSource>, std::span<const float>) override {
    return nullptr;
  }
  std::unique_ptr<Linear> load_linear_beside(const WeightSource&) override { return nullptr; }
  std::unique_ptr<Embedding> load_embedding(const WeightSource&) override { return nullptr; }
  std::unique_ptr<Buffer> upload(std::span<const float>) override { return nullptr; }
  std::unique_ptr<Buffer> allocate(std::int64_t) override { return nullptr; }
  std::unique_ptr<KvStorage> allocate_kv(const KvLayout& layout) override {
    return std::make_unique<FakeStorage>(layout);
  }
  std::size_t packed_bytes(DType, std::int64_t, std::int64_t) const override { return 0; }
  std::size_t kv_block_bytes(const KvLayout& layout) const override { return FakeStorage(layout).block_bytes(); }
  void embed(const Embedding&, std::span<const std::int32_t>, MatrixView) override {}
  void rms_norm(MatrixView, const float*, float, MatrixView) override {}
  void head_rms_norm(MatrixView, std::int64_t, std::int64_t, const float*, float) override {}
  void linear(const Linear&, const ProductInput&, MatrixView, bool) override {}
  void rope_angles(const RopePositions&, std::span<const double>, float, MatrixView, MatrixView) override {}
  void rope(MatrixView, std::int64_t, std::int64_t, RopeStyle, MatrixView, MatrixView) override {}
  void store_kv(KvStorage&, std::int64_t, const AttentionBatch&, MatrixView, MatrixView) override {}
  void attention(const KvStorage&, std::int64_t, const AttentionBatch&, MatrixView, std::int64_t, float,
                 MatrixView) override {}
  void gather_rows(MatrixView, std::span<const std::int32_t>, MatrixView) override {}
  void put_rows(std::span<const float>, MatrixView) override {}
  void parallel_for(std::int64_t count, std::int64_t,
                    const std::function<void(std::int64_t, std::int64_t)>& body) override {
    if (around_parallel) around_parallel(true);
    if (count > 0) body(0, count);
    if (around_parallel) around_parallel(false);
  }
  void synchronize() override {}
  RecurrentOps* recurrent() override { return &recurrent_; }

  std::function<void(bool begins)> around_parallel;

 private:
  FakeRecurrentOps recurrent_;
};

class FakeModel : public Model {
 public:
  // right_percent: share of right drafts by the model itself; below zero: it drafts none.
  explicit FakeModel(std::int64_t vocab = 64, std::int64_t context = 100'000, std::int64_t window = 0,
                     int right_percent = -1, DraftsBy drafts_by = DraftsBy::kNextTokens, bool recurs = false)
      : right_drafts_percent(right_percent),
        vocab_(vocab),
        context_(context),
        window_(window),
        drafts_by_(drafts_by),
        recurs_(recurs) {}

  void reserve(std::int64_t max_rows, std::int64_t max_logit_rows) override {
    logits_.reserve(static_cast<std::size_t>(max_logit_rows * vocab_));
    hidden_.reserve(static_cast<std::size_t>(max_rows * hidden_size()));
    labels_.reserve(static_cast<std::size_t>(max_rows * num_labels()));
    drafted_.reserve(static_cast<std::size_t>(max_logit_rows * vocab_));
  }
  ModelOutput forward(const StepArrays& arrays, KvStorage& kv) override {
    auto& storage = dynamic_cast<FakeStorage&>(kv);
    const AttentionBatch& batch = arrays.attention;
    const auto is_interrupted = [&] { return arrays.interrupt != nullptr && arrays.interrupt->load(); };
    std::int64_t end = 0;
    bool is_cut = false;
    do {
      if (before_slice) before_slice();
      is_cut = arrays.cuts_slices && is_interrupted();
      if (is_cut) break;
      end = arrays.slice_rows > 0 ? std::min(end + arrays.slice_rows, arrays.num_rows()) : arrays.num_rows();
    } while (end < arrays.num_rows() && !is_interrupted());
    num_rows += end;
    const auto num_wanted = static_cast<std::int64_t>(arrays.logit_rows.size() + arrays.hidden_rows.size());
    num_logit_rows += num_wanted;
    most_logit_rows = std::max(most_logit_rows, num_wanted);
    if (fail_after_rows >= 0 && num_rows > fail_after_rows) throw DeviceError("device lost");
    sequences_a_step.push_back(static_cast<std::int64_t>(batch.context_len.size()));
    if (recurs_) recurrent_.assign(arrays.token_ids.size(), 0);
    std::size_t sequence = 0;
    for (std::size_t row = 0; std::cmp_less(row, end); ++row) {
      while (std::cmp_less_equal(batch.query_start[sequence + 1], row))
        ++sequence;
      const std::int32_t kept = arrays.token_ids[row] + adapted(arrays, sequence);
      storage.tokens[static_cast<std::size_t>(batch.slots[row])] = kept;
      storage.row_tokens[static_cast<std::size_t>(batch.slots[row])] = arrays.token_ids[row];
      if (parts_of(arrays) != nullptr)
        parts_of(arrays)->tokens[static_cast<std::size_t>(arrays.window.slots[row])] = kept;
      if (recurs_) recurrent_[row] = advanced(arrays, sequence, arrays.positions[row], kept);
    }
    return {.num_rows = end,
            .cut_slice = is_cut,
            .logits = made_rows(arrays, storage, storage.tokens, arrays.logit_rows, end, vocab_, logits_),
            .hidden = made_rows(arrays, storage, storage.tokens, arrays.hidden_rows, end, hidden_size(), hidden_),
            .labels = made_rows(arrays, storage, storage.tokens, arrays.label_rows, end, num_labels(), labels_)};
  }
  DraftsBy drafts_by() const override { return right_drafts_percent >= 0 ? drafts_by_ : DraftsBy::kNothing; }
  // Writes where the next pass does, and gets this share of its logits right. A drafting model must have been given
  // every row of its sequences.
  MatrixView draft(const DraftArrays& arrays, KvStorage& kv) override {
    auto& storage = dynamic_cast<FakeStorage&>(kv);
    const bool is_model = drafts_by_ == DraftsBy::kModel;
    ++num_rounds;
    num_drafter_rows += arrays.num_rows();
    num_looked_at = arrays.vocabulary.empty() ? vocab_ : 0;
    for (const OutputRange& range : arrays.vocabulary)
      num_looked_at += range.end - range.begin;
    for (std::size_t row = 0; row < arrays.token_ids.size(); ++row) {
      const auto slot = static_cast<std::size_t>(arrays.attention.slots[row]);
      storage.row_tokens[slot] = arrays.token_ids[row];
      (is_model ? storage.drafter_tokens : storage.tokens)[slot] = arrays.token_ids[row];
    }
    if (is_model) count_wrong_rows(arrays.attention, storage);
    StepArrays as_step;
    as_step.positions = arrays.positions;
    as_step.attention = arrays.attention;
    const MatrixView made = made_rows(as_step, storage, is_model ? storage.drafter_tokens : storage.tokens,
                                      arrays.logit_rows, arrays.num_rows(), vocab_, drafted_);
    for (float& logit : drafted_) {
      if (static_cast<int>(mix(static_cast<std::uint64_t>(++num_drafted_logits_ / vocab_)) % 100) >=
          right_drafts_percent)
        logit = -logit;
    }
    return made;
  }
  std::int64_t state_floats() const override { return recurs_ ? sizeof(FakeStates::State) / sizeof(float) : 0; }
  std::int64_t vocab_size() const override { return vocab_; }
  std::int64_t hidden_size() const override { return 4; }
  std::int64_t num_labels() const override { return 3; }
  std::int64_t max_context() const override { return context_; }
  KvLayout kv_layout() const override { return {.num_layers = 1, .num_kv_heads = 1, .head_dim = 1}; }
  KvSplit kv_split() const override { return {.window = window_, .full = kv_layout(), .windowed = kv_layout()}; }

  std::int64_t num_rows = 0;                   // computed so far
  std::int64_t num_logit_rows = 0;             // rows with requested logits or hidden states
  std::int64_t most_logit_rows = 0;            // maximum in one step
  std::int64_t fail_after_rows = -1;           // the device fails after this many rows; -1: never
  std::vector<std::int64_t> sequences_a_step;  // sequences of each pass
  std::function<void()> before_slice;
  int right_drafts_percent = -1;
  std::int64_t num_rounds = 0;        // drafting rounds
  std::int64_t num_drafter_rows = 0;  // rows computed in draft rounds
  std::int64_t num_looked_at = 0;     // vocabulary tokens searched in the last draft round
  std::int64_t num_wrong_rows = 0;    // stale rows that the draft model read
  std::int64_t num_wrong_states = 0;  // states of another position than their row's

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  // The adapter's change of "keys and values" and of logits, read from the adapter's memory.
  static std::int32_t adapted(const StepArrays& arrays, std::size_t sequence) {
    const Adapter* const adapter = arrays.adapters.empty() ? nullptr : arrays.adapters[sequence];
    std::int32_t change = 0;
    for (const char c : adapter == nullptr ? std::string() : adapter->content_key())
      change = (change * 31 + c) % 1'000'003;
    return change;
  }

  // The state after a row, which moves on from before it.
  std::uint64_t advanced(const StepArrays& arrays, std::size_t sequence, std::int32_t position, std::int32_t token) {
    FakeStates::State& state = dynamic_cast<FakeStates&>(*arrays.state_storage).at(arrays.states[sequence]);
    if (position == 0) state = {};
    num_wrong_states += state.num_tokens != position ? 1 : 0;
    state.hash = mix(state.hash * 31 + static_cast<std::uint64_t>(token) + 7);
    ++state.num_tokens;
    return state.hash;
  }

  void count_wrong_rows(const AttentionBatch& batch, const FakeStorage& storage) {
    const auto block_size = static_cast<std::int32_t>(storage.layout().block_size);
    for (std::size_t sequence = 0; sequence < batch.context_len.size(); ++sequence) {
      const auto first = static_cast<std::size_t>(batch.block_table_start[sequence]);
      for (std::int32_t p = 0; p < batch.context_len[sequence]; ++p) {
        const std::int32_t block = batch.block_tables[first + static_cast<std::size_t>(p / block_size)];
        const auto slot = static_cast<std::size_t>(block * block_size + p % block_size);
        num_wrong_rows += storage.row_tokens[slot] != storage.drafter_tokens[slot] ? 1 : 0;
      }
    }
  }

  // Makes results of the wanted rows before row `end`; `kept`: by slot, the K/V of layers that see all tokens.
  MatrixView made_rows(const StepArrays& arrays, const FakeStorage& storage, const std::vector<std::int32_t>& kept,
                       std::span<const std::int32_t> wanted, std::int64_t end, std::int64_t width,
                       std::vector<float>& out) const {
    out.clear();
    const AttentionBatch& batch = arrays.attention;
    const auto block_size = static_cast<std::int32_t>(storage.layout().block_size);
    std::size_t sequence = 0;
    std::int64_t num_made = 0;
    for (const std::int32_t row : wanted) {
      if (row >= end) break;
      while (batch.query_start[sequence + 1] <= row)
        ++sequence;
      const std::int32_t position = arrays.positions[static_cast<std::size_t>(row)];
      std::uint64_t state = context_hash(kept, block_size, batch, sequence, 0, position) +
                            static_cast<std::uint64_t>(adapted(arrays, sequence));
      if (recurs_ && arrays.state_storage != nullptr) state += recurrent_[static_cast<std::size_t>(row)];
      if (window_ > 0) {
        const auto first = static_cast<std::int32_t>(std::max<std::int64_t>(0, position - window_ + 1));
        const FakeStorage* const parts = parts_of(arrays);
        state += context_hash(parts == nullptr ? kept : parts->tokens, block_size,
                              parts == nullptr ? batch : arrays.window, sequence, first, position);
      }
      for (std::int64_t i = 0; i < width; ++i) {
        const std::uint64_t bits = mix(state + 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(i + 1));
        out.push_back(static_cast<float>(bits >> 40) * (8.0F / 16777216.0F));
      }
      ++num_made;
    }
    return {out.data(), num_made, width, width};
  }

  static std::uint64_t context_hash(const std::vector<std::int32_t>& kept, std::int32_t block_size,
                                    const AttentionBatch& batch, std::size_t sequence, std::int32_t from,
                                    std::int32_t position) {
    const auto first = static_cast<std::size_t>(batch.block_table_start[sequence]);
    std::uint64_t hash = 1;
    for (std::int32_t p = from; p <= position; ++p) {
      const std::int32_t block = batch.block_tables[first + static_cast<std::size_t>(p / block_size)];
      const std::int32_t token = kept[static_cast<std::size_t>(block * block_size + p % block_size)];
      hash = mix(hash * 31 + static_cast<std::uint64_t>(token) + 7);
    }
    return hash;
  }

  static FakeStorage* parts_of(const StepArrays& arrays) { return dynamic_cast<FakeStorage*>(arrays.window_storage); }

  std::int64_t vocab_;
  std::int64_t context_;
  std::int64_t window_;
  DraftsBy drafts_by_;
  const bool recurs_;
  std::vector<std::uint64_t> recurrent_;  // by row: the state after it
  std::vector<float> logits_;
  std::vector<float> hidden_;
  std::vector<float> labels_;
  std::vector<float> drafted_;
  std::int64_t num_drafted_logits_ = 0;
};

}  // namespace quire::test
