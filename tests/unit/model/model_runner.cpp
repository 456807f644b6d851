#include "tests/unit/model/model_runner.h"

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/registry.h"
#if defined(__x86_64__)
#include "tests/support/amx_tables.h"
#endif

namespace quire::test {

namespace {

constexpr std::int32_t kBlockSize = 16;
constexpr std::int32_t kNumBlocks = 256;
constexpr std::int32_t kBlocksPerSequence = 64;

constexpr std::int32_t kNumStates = 8;

[[maybe_unused]] constexpr const char* kEmulatedAmx = "amx (emulated)";

std::unique_ptr<Backend> make_backend(const std::string& isa, int threads) {
#if defined(__x86_64__)
  if (isa == kEmulatedAmx) {
    const bool has_avx512 = cpu_levels()[2].supported();
    const KernelTable& kernels = has_avx512 ? amx_emulated_avx512_kernels() : amx_emulated_kernels();
    return make_cpu_backend({.kernels = &kernels, .threads = threads});
  }
#endif
  return create_backend({.device = "cpu", .cpu = {.isa = isa, .threads = threads, .pin = false}});
}

// All rows, or the last row of each sequence.
std::vector<std::int32_t> wanted_rows(std::span<const std::int32_t> query_start, bool last_alone) {
  std::vector<std::int32_t> rows;
  for (std::size_t i = 1; i < query_start.size(); ++i) {
    for (std::int32_t row = last_alone ? query_start[i] - 1 : query_start[i - 1]; row < query_start[i]; ++row)
      rows.push_back(row);
  }
  return rows;
}

}  // namespace

ModelRunner::ModelRunner(const LoadedModel& model, const std::string& isa, KvDType kv_dtype, int threads,
                         const PackedCacheOptions& cache)
    : backend_(make_backend(isa, threads)), model_(model.build(backend_, {}, cache)) {
  allocate(kv_dtype);
}

ModelRunner::ModelRunner(const LoadedModel& model, std::unique_ptr<Backend> backend)
    : backend_(std::move(backend), false), model_(model.build(backend_, {}, {})) {
  allocate(KvDType::kF32);
}

void ModelRunner::allocate(KvDType kv_dtype) {
  KvLayout layout = model_->kv_layout();
  layout.num_blocks = kNumBlocks;
  layout.block_size = kBlockSize;
  layout.dtype = kv_dtype;
  kv_ = backend_.allocate_kv(layout);
  if (model_->state_floats() > 0)
    states_ = backend_.recurrent()->allocate_states({.num_states = kNumStates, .floats = model_->state_floats()});
}

ModelRunner::~ModelRunner() = default;

void ModelRunner::reset() {
  context_ = 0;
}

// Every sequence has kBlocksPerSequence blocks of its own and `context` tokens in them already.
Logits ModelRunner::step(const std::vector<std::span<const std::int32_t>>& sequences, std::int32_t context,
                         Wanted wanted) {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> query_start{0};
  std::vector<std::int32_t> context_len;
  std::vector<std::int32_t> table_start{0};
  std::vector<std::int32_t> tables;
  for (const auto& sequence : sequences) {
    const std::size_t first_block = tables.size();
    // An order that no arithmetic on block ids would hit by chance: 37 and the number of blocks have no common divisor.
    for (std::int32_t i = 0; i < kBlocksPerSequence; ++i) {
      tables.push_back((static_cast<std::int32_t>(tables.size()) * 37 + 11) % kNumBlocks);
    }
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(sequence.size()); ++i) {
      const std::int32_t position = context + i;
      ids.push_back(sequence[static_cast<std::size_t>(i)]);
      positions.push_back(position);
      slots.push_back(tables.at(first_block + static_cast<std::size_t>(position / kBlockSize)) * kBlockSize +
                      position % kBlockSize);
    }
    query_start.push_back(static_cast<std::int32_t>(ids.size()));
    context_len.push_back(context + static_cast<std::int32_t>(sequence.size()));
    table_start.push_back(static_cast<std::int32_t>(tables.size()));
  }
  const std::vector<std::int32_t> rows = wanted_rows(query_start, wanted == Wanted::kLastLogits);
  StepArrays arrays{.token_ids = ids,
                    .positions = positions,
                    .attention = {.query_start = query_start,
                                  .context_len = context_len,
                                  .block_table_start = table_start,
                                  .block_tables = tables,
                                  .slots = slots}};
  std::vector<std::int32_t> states;
  for (std::size_t i = 0; i < sequences.size(); ++i)
    states.push_back(static_cast<std::int32_t>(i * 3 + 2) % kNumStates);
  arrays.states = states;
  arrays.state_storage = states_.get();
  (wanted == Wanted::kHidden   ? arrays.hidden_rows
   : wanted == Wanted::kLabels ? arrays.label_rows
                               : arrays.logit_rows) = rows;
  if (edit) edit(arrays);
  model_->reserve(static_cast<std::int64_t>(ids.size()), static_cast<std::int64_t>(rows.size()));
  const ModelOutput output = model_->forward(arrays, *kv_);
  const MatrixView result = backend_.on_host(wanted == Wanted::kHidden   ? output.hidden
                                             : wanted == Wanted::kLabels ? output.labels
                                                                         : output.logits,
                                             HostResult::kLogits);
  backend_.synchronize();
  Logits out;
  for (std::int64_t row = 0; row < result.rows; ++row) {
    const float* values = result.data + row * result.stride;
    out.emplace_back(values, values + result.cols);
  }
  return out;
}

Logits ModelRunner::append(std::span<const std::int32_t> ids) {
  Logits out = step({ids}, context_, Wanted::kLogits);
  context_ += static_cast<std::int32_t>(ids.size());
  return out;
}

std::vector<float> ModelRunner::append_for_last(std::span<const std::int32_t> ids) {
  Logits out = step({ids}, context_, Wanted::kLastLogits);
  context_ += static_cast<std::int32_t>(ids.size());
  return std::move(out.front());
}

Logits ModelRunner::append_hidden(std::span<const std::int32_t> ids) {
  Logits out = step({ids}, context_, Wanted::kHidden);
  context_ += static_cast<std::int32_t>(ids.size());
  return out;
}

Logits ModelRunner::append_labels(std::span<const std::int32_t> ids) {
  Logits out = step({ids}, context_, Wanted::kLabels);
  context_ += static_cast<std::int32_t>(ids.size());
  return out;
}

std::vector<Logits> ModelRunner::append_together(const std::vector<std::vector<std::int32_t>>& sequences) {
  const Logits rows = step({sequences.begin(), sequences.end()}, 0, Wanted::kLogits);
  std::vector<Logits> out;
  auto row = rows.begin();
  for (const auto& sequence : sequences) {
    const auto end = row + std::ssize(sequence);
    out.emplace_back(row, end);
    row = end;
  }
  return out;
}

Logits ModelRunner::append_together_for_last(const std::vector<std::vector<std::int32_t>>& sequences) {
  return step({sequences.begin(), sequences.end()}, 0, Wanted::kLastLogits);
}

Logits ModelRunner::append_chunked(std::span<const std::int32_t> ids, std::size_t chunk) {
  Logits out;
  for (std::size_t begin = 0; begin < ids.size(); begin += chunk) {
    for (auto& row : append(ids.subspan(begin, std::min(chunk, ids.size() - begin))))
      out.push_back(std::move(row));
  }
  return out;
}

std::vector<std::int32_t> ModelRunner::greedy(std::span<const std::int32_t> prompt, std::size_t count) {
  reset();
  std::vector<std::int32_t> out{argmax(append(prompt).back())};
  while (out.size() < count)
    out.push_back(argmax(append({&out.back(), 1}).back()));
  return out;
}

std::vector<std::string> supported_isa_levels() {
  std::vector<std::string> names;
  for (const IsaLevel& level : cpu_isa_levels()) {
    if (level.supported) names.push_back(level.name);
  }
#if defined(__x86_64__)
  if (names.back() != "avx512amx") names.emplace_back(kEmulatedAmx);
#endif
  return names;
}

std::string best_isa_level() {
  std::string best;
  for (const IsaLevel& level : cpu_isa_levels()) {
    if (level.supported) best = level.name;
  }
  return best;
}

Rounding rounding_of(const std::string& isa) {
  if (isa == "avx512bf16") return Rounding::kInt8OrBf16;
  if (isa == "avx512amx") return Rounding::kInt8OrHalves;
  return isa.starts_with("amx") ? Rounding::kBf16 : Rounding::kInt8Activations;
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace quire::test
