// Reads adapters' files and packs them for a model's products.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/base/result.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/architectures/registry.h"
#include "core/model/layers/adapters/adapter_file.h"
#include "core/model/layers/adapters/read_adapter.h"
#include "core/model/layers/checkpoint.h"
#include "core/model/parts/parts.h"

namespace quire {

namespace {

using Role = WeightRole;
namespace fs = std::filesystem;

// PEFT's name of the matrix, from "layers" on: "layers.3.self_attn.q_proj", "lm_head".
std::string peft_name(Role role, std::int64_t layer) {
  std::string_view name = role_info(role).hf;
  if (name.empty()) return {};
  if (name.starts_with('^')) name.remove_prefix(1);
  return layer < 0 ? std::string(name) : fmt::format("layers.{}.{}", layer, name);
}

// Whether a head's query and key rows are halves in Hugging Face's files and pairs in GGUF's: true for architectures
// with pairs, as llama.cpp's converter makes them, except families that have pairs in both.
bool swaps_halves(std::string_view architecture) {
  const auto known = std::ranges::find(architectures(), architecture, &Architecture::name);
  if (known == architectures().end() || known->rope != RopeStyle::kInterleaved) return false;
  return std::ranges::all_of(hf_families(), [&](const HfFamily& family) {
    return family.architecture != architecture || family.swaps_halves;
  });
}

bool any_family(std::string_view architecture, bool (*has)(const HfFamily& family)) {
  return std::ranges::any_of(
      hf_families(), [&](const HfFamily& family) { return family.architecture == architecture && has(family); });
}

// Rows of a matrix, of a type that takes rows of any length.
struct Rows {
  DType type = DType::kF32;
  std::vector<std::byte> bytes;
};

std::vector<float> decoded(const StoredTensor& tensor, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  dequantize(*tensor.type, tensor.data.data(), count, out.data());
  return out;
}

Rows rows_of_floats(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {DType::kF32, {bytes.begin(), bytes.end()}};
}

// A pair that changes a parameter of the whole stack of experts, PEFT's form for `target_parameters`: down is [experts
// * rank, a], up [b, rank * experts]. If the parameter is [experts][outputs][inputs], `a` is the outputs in older
// files.
struct StackedPair {
  std::int64_t rank = 0;
  std::int64_t num_experts = 0;
  bool is_turned = false;
  std::vector<float> down;  // decoded
  std::vector<float> up;

  // The matrices of an expert, [rank, inputs] and [outputs, rank].
  std::vector<float> down_of(std::int64_t expert) const { return is_turned ? by_input(expert) : by_rank(expert); }
  std::vector<float> up_of(std::int64_t expert) const {
    return is_turned ? transposed(by_rank(expert), rank) : transposed(by_input(expert), rank);
  }

 private:
  std::vector<float> by_rank(std::int64_t expert) const {
    const std::int64_t size = std::ssize(down) / num_experts;
    return {down.begin() + expert * size, down.begin() + (expert + 1) * size};
  }
  std::vector<float> by_input(std::int64_t expert) const {  // the expert's values of `up` as [rank, b]
    const std::int64_t length = std::ssize(up) / (rank * num_experts);
    std::vector<float> out;
    for (std::int64_t r = 0; r < rank; ++r) {
      for (std::int64_t i = 0; i < length; ++i)
        out.push_back(up[static_cast<std::size_t>((i * rank + r) * num_experts + expert)]);
    }
    return out;
  }
  static std::vector<float> transposed(const std::vector<float>& matrix, std::int64_t rows) {
    const std::int64_t cols = std::ssize(matrix) / rows;
    std::vector<float> out;
    for (std::int64_t j = 0; j < cols; ++j) {
      for (std::int64_t i = 0; i < rows; ++i)
        out.push_back(matrix[static_cast<std::size_t>(i * cols + j)]);
    }
    return out;
  }
};

class Reader {
 public:
  Reader(AdapterFile file, const ModelSpec& spec, Backend& backend, std::int64_t max_rank)
      : file_(std::move(file)),
        spec_(spec),
        backend_(backend),
        max_rank_(max_rank),
        pairs_(file_.pairs()),
        pairs_outputs_(any_family(spec.config.architecture, [](const HfFamily& f) { return f.pairs_experts; })),
        has_column_experts_(
            any_family(spec.config.architecture, [](const HfFamily& f) { return !f.column_experts.empty(); })) {
    for (const LayerSpec& layer : spec_.layers) {
      if (!mixer_part(layer).has_heads() || layer.attention.rope < 0) continue;
      rotates_ = true;
      has_pairs_ = spec_.ropes[static_cast<std::size_t>(layer.attention.rope)].style == RopeStyle::kInterleaved;
    }
  }

  std::shared_ptr<const Adapter> read() {
    const std::string& own = spec_.config.architecture;
    if (file_.is_gguf() && file_.gguf_architecture != own)
      file_.fail(fmt::format("the adapter is for '{}', and the model is '{}'", file_.gguf_architecture, own));
    std::vector<Adapter::Layer> layers(spec_.layers.size());
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      const auto index = static_cast<std::int64_t>(layer);
      read_group(index, layers[layer].products);
      read_experts(index, layers[layer]);
    }
    Adapter::Group model;
    read_group(-1, model);
    if (!pairs_.empty())
      file_.fail(fmt::format("'{}' is no product of this model that an adapter can change", pairs_.begin()->first));
    auto out = std::make_shared<const Adapter>(std::move(layers), std::move(model), file_.content_key(scales_));
    if (out->changes_experts() && !backend_.has(Ability::kExpertAdapters))
      file_.fail(fmt::format("it changes experts, which {} does not compute", backend_.name()));
    return out;
  }

 private:
  void read_group(std::int64_t layer, Adapter::Group& out) {
    std::array<std::int64_t, kNumWeightRoles> num_outputs{};
    for (const WeightNeed& need : weight_needs(spec_, layer)) {
      if (need.form != WeightForm::kProduct || (layer < 0 && need.role != Role::kHead)) continue;
      std::int64_t& first = num_outputs[static_cast<std::size_t>(need.product)];
      const std::string name = file_.is_gguf() ? gguf_name(need.role, layer) : peft_name(need.role, layer);
      if (const AdapterPair* pair = find(name)) {
        out[static_cast<std::size_t>(need.product)].push_back(pack(name, *pair, need, layer, first));
        pairs_.erase(name);
      }
      first += need.rows;
    }
  }

  // --- experts -------------------------------------------------------------------------------------------------------

  void read_experts(std::int64_t layer, Adapter::Layer& out) {
    const FeedForwardSpec& ffn = spec_.layer(layer).feed_forward;
    const std::vector<ExpertMatrix> matrices = expert_matrices(layer);
    if (matrices.empty()) return;
    for (const ExpertMatrix& matrix : matrices) {
      const auto list_of = [&](std::int64_t expert) -> std::vector<LowRank>& {
        Adapter::Experts& lists = matrix.is_down ? out.down : out.gate_up;
        lists.resize(static_cast<std::size_t>(ffn.num_experts));
        return lists[static_cast<std::size_t>(expert)];
      };
      if (file_.is_gguf()) {
        const std::string name = gguf_name(matrix.role, layer);
        const AdapterPair* pair = find(name);
        for (std::int64_t expert = 0; pair != nullptr && expert < ffn.num_experts; ++expert)
          list_of(expert).push_back(pack_of_stack(name, *pair, matrix, expert, ffn.num_experts));
        pairs_.erase(name);
        continue;
      }
      for (const std::string& form : hf_layer_names(spec_.config.architecture, matrix.role)) {
        const std::size_t number = form.find('#');
        for (std::int64_t expert = 0; number != std::string::npos && expert < ffn.num_experts; ++expert) {
          const std::string name =
              fmt::format("layers.{}.{}{}{}", layer, form.substr(0, number), expert, form.substr(number + 1));
          const AdapterPair* pair = find(name);
          if (pair == nullptr) continue;
          list_of(expert).push_back(pack_matrix(name, *pair, matrix));
          pairs_.erase(name);
        }
      }
    }
    if (!file_.is_gguf()) read_stacked_pairs(layer, ffn, out);
  }

  std::vector<ExpertMatrix> expert_matrices(std::int64_t layer) const {
    const LayerSpec& spec = spec_.layer(layer);
    return feed_forward_part(spec).expert_matrices(spec, spec_.config.hidden_size);
  }

  LowRank pack_matrix(const std::string& name, const AdapterPair& pair, const ExpertMatrix& matrix) {
    const std::int64_t rank = rank_of(name, pair, 0);
    check_shapes(name, pair, {rank, matrix.cols}, {matrix.rows, rank});
    return join(pair, rows_of(*pair.down, 0, rank, matrix.cols), rows_of(*pair.up, 0, matrix.rows, rank), rank,
                matrix.rows, matrix.cols, matrix.first_output);
  }

  LowRank pack_of_stack(const std::string& name, const AdapterPair& pair, const ExpertMatrix& matrix,
                        std::int64_t expert, std::int64_t num_experts) {
    const std::int64_t rank = rank_of(name, pair, 1);
    check_shapes(name, pair, {num_experts, rank, matrix.cols}, {num_experts, matrix.rows, rank});
    return join(pair, rows_of(*pair.down, expert * rank, rank, matrix.cols),
                rows_of(*pair.up, expert * matrix.rows, matrix.rows, rank), rank, matrix.rows, matrix.cols,
                matrix.first_output);
  }

  // PEFT names them by the module that has the parameters, and the inner one of a module's two by "base_layer": only
  // its shape shows which parameter a pair changes.
  void read_stacked_pairs(std::int64_t layer, const FeedForwardSpec& ffn, Adapter::Layer& out) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    for (auto at = pairs_.lower_bound(prefix); at != pairs_.end() && at->first.starts_with(prefix);) {
      const std::string& name = at->first;
      if (!name.ends_with(".experts") && !name.ends_with(".experts.base_layer")) {
        ++at;
        continue;
      }
      read_stacked(name, at->second, layer, ffn, out);
      at = pairs_.erase(at);
    }
  }

  void read_stacked(const std::string& name, const AdapterPair& pair, std::int64_t layer, const FeedForwardSpec& ffn,
                    Adapter::Layer& out) {
    const std::int64_t rows = rank_of(name, pair, 0, ffn.num_experts);
    const std::int64_t rank = rows / ffn.num_experts;
    if (pair.down->shape.size() != 2 || pair.up->shape.size() != 2 || pair.up->shape[1] != rows || rank == 0 ||
        rank * ffn.num_experts != rows)
      file_.fail(fmt::format("the matrices of '{}' are not those of {} experts", name, ffn.num_experts));
    const std::int64_t from = pair.down->shape[1];
    const std::int64_t to = pair.up->shape[0];
    for (const ExpertMatrix& matrix : expert_matrices(layer)) {
      const bool is_straight = from == matrix.cols && to == matrix.rows;
      const bool is_turned = from == matrix.rows && to == matrix.cols;
      if (!matrix.is_whole || (!is_straight && !is_turned)) continue;
      if (is_straight && is_turned && !has_column_experts_)
        file_.fail(fmt::format("'{}' does not show which of its matrices sees the inputs", name));
      const StackedPair stacked{.rank = rank,
                                .num_experts = ffn.num_experts,
                                .is_turned = !is_straight,
                                .down = decoded(*pair.down, rows * from),
                                .up = decoded(*pair.up, to * rows)};
      Adapter::Experts& lists = matrix.is_down ? out.down : out.gate_up;
      lists.resize(static_cast<std::size_t>(ffn.num_experts));
      for (std::int64_t expert = 0; expert < ffn.num_experts; ++expert) {
        Rows up = rows_of_floats(stacked.up_of(expert));
        if (pairs_outputs_ && !matrix.is_down) up = in_order(up, halves_of_pairs(matrix.rows));
        lists[static_cast<std::size_t>(expert)].push_back(join(pair, rows_of_floats(stacked.down_of(expert)), up, rank,
                                                               matrix.rows, matrix.cols, matrix.first_output));
      }
      return;
    }
    file_.fail(fmt::format("the matrices of '{}' fit no parameter of the model's experts", name));
  }

  // --- matrices ------------------------------------------------------------------------------------------------------

  // Null if the file has none.
  const AdapterPair* find(const std::string& name) const {
    const auto found = pairs_.find(name);
    return found == pairs_.end() ? nullptr : &found->second;
  }

  // Size of the given dimension of the first matrix, the last but one, which is `times` the rank; 0: the matrix has
  // another number of dimensions.
  std::int64_t rank_of(const std::string& name, const AdapterPair& pair, std::size_t dimension,
                       std::int64_t times = 1) const {
    if (pair.down == nullptr || pair.up == nullptr) file_.fail(fmt::format("'{}' has one of its two matrices", name));
    for (const StoredTensor* tensor : {pair.down, pair.up}) {
      if (!tensor->type)
        file_.fail(fmt::format("'{}' is of the type {}, which is not computed", tensor->name, tensor->type_name));
    }
    const std::int64_t size = pair.down->shape.size() == dimension + 2 ? pair.down->shape[dimension] : 0;
    if (size / times > max_rank_)
      file_.fail(fmt::format("'{}' has the rank {}; at most {} is computed", name, size / times, max_rank_));
    return size;
  }

  void check_shapes(const std::string& name, const AdapterPair& pair, const std::vector<std::int64_t>& down,
                    const std::vector<std::int64_t>& up) const {
    if (pair.down->shape != down || pair.up->shape != up || up.back() == 0)
      file_.fail(fmt::format("the matrices of '{}' do not fit the model's, of [{}, {}]", name, up[up.size() - 2],
                             down.back()));
  }

  LowRank pack(const std::string& name, const AdapterPair& pair, const WeightNeed& need, std::int64_t layer,
               std::int64_t first_output) {
    const std::int64_t rank = rank_of(name, pair, 0);
    check_shapes(name, pair, {rank, need.cols}, {need.rows, rank});
    const Rows up = in_order(rows_of(*pair.up, 0, need.rows, rank), row_order(need, layer));
    return join(pair, rows_of(*pair.down, 0, rank, need.cols), up, rank, need.rows, need.cols, first_output);
  }

  LowRank join(const AdapterPair& pair, const Rows& down, const Rows& up, std::int64_t rank, std::int64_t rows,
               std::int64_t cols, std::int64_t first_output) {
    const auto load = [&](const Rows& matrix, std::int64_t count, std::int64_t width, float scale) {
      return backend_.load_linear_beside(
          {.type = matrix.type, .rows = count, .cols = width, .data = matrix.bytes.data(), .scale = scale});
    };
    LowRank out;
    out.first_output = first_output;
    out.down = load(down, rank, cols, 1.0F);
    scales_.push_back(static_cast<float>(file_.scale(pair.module, rank)));
    out.up = load(up, rows, rank, scales_.back());
    return out;
  }

  // In the file's type if it takes rows of any length; else decoded.
  static Rows rows_of(const StoredTensor& tensor, std::int64_t first, std::int64_t count, std::int64_t cols) {
    const std::byte* const data = tensor.data.data() + dtype_bytes(*tensor.type, first * cols);
    if (dtype_info(*tensor.type).block_size == 1)
      return {*tensor.type, {data, data + dtype_bytes(*tensor.type, count * cols)}};
    Rows out{DType::kF32, std::vector<std::byte>(dtype_bytes(DType::kF32, count * cols))};
    dequantize(*tensor.type, data, count * cols, reinterpret_cast<float*>(out.bytes.data()));
    return out;
  }

  // New order of query and key rows if the model's differs. Rows of pairs of groups are reordered like the product's
  // (WeightNeed::gate_rows). Empty: unchanged.
  std::vector<std::int64_t> row_order(const WeightNeed& need, std::int64_t layer) const {
    std::vector<std::int64_t> order;
    if (need.gate_rows > 0) {
      for (std::int64_t half = 0; half < 2; ++half) {
        for (std::int64_t at = half * need.gate_rows; at < need.rows; at += 2 * need.gate_rows) {
          for (std::int64_t i = 0; i < need.gate_rows; ++i)
            order.push_back(at + i);
        }
      }
    } else if (const std::int64_t head = turned_rows(need.role, layer); head > 0) {
      const std::int64_t half = head / 2;
      for (std::int64_t row = 0; row < need.rows; ++row) {
        const std::int64_t at = row % head;
        order.push_back(row - at + (has_pairs_ ? at % 2 * half + at / 2 : at % half * 2 + at / half));
      }
    }
    return order;
  }

  // Order that puts all of the gate first if gate and up alternate.
  static std::vector<std::int64_t> halves_of_pairs(std::int64_t count) {
    std::vector<std::int64_t> order;
    for (std::int64_t row = 0; row < count; ++row)
      order.push_back(row < count / 2 ? 2 * row : 2 * (row - count / 2) + 1);
    return order;
  }

  static Rows in_order(Rows rows, const std::vector<std::int64_t>& order) {
    if (order.empty()) return rows;
    Rows out{rows.type, std::vector<std::byte>(rows.bytes.size())};
    const auto size = static_cast<std::int64_t>(rows.bytes.size() / order.size());
    for (std::size_t row = 0; row < order.size(); ++row)
      std::copy_n(rows.bytes.begin() + order[row] * size, size,
                  out.bytes.begin() + static_cast<std::int64_t>(row) * size);
    return out;
  }

  // Size of the heads whose rows must be reordered: a GGUF adapter has pairs, PEFT's halves; 0: none.
  std::int64_t turned_rows(Role role, std::int64_t layer) const {
    if (layer < 0 || has_pairs_ == file_.is_gguf() || !rotates_ || !swaps_halves(spec_.config.architecture)) return 0;
    const LayerSpec& spec = spec_.layers[static_cast<std::size_t>(layer)];
    return mixer_part(spec).turned_rows(spec, role);
  }

  const AdapterFile file_;
  const ModelSpec& spec_;
  Backend& backend_;
  const std::int64_t max_rank_;
  std::map<std::string, AdapterPair> pairs_;  // not read yet
  const bool pairs_outputs_;                  // gate and up alternate in stacks of Hugging Face's files
  const bool has_column_experts_;             // stacks are [experts][inputs][outputs]
  std::vector<float> scales_;                 // in the order of use
  bool rotates_ = false;                      // some layer rotates
  bool has_pairs_ = false;                    // the model's query and key rows are pairs
};

}  // namespace

std::shared_ptr<const Adapter> read_adapter(const fs::path& path, const ModelSpec& spec, Backend& backend,
                                            std::int64_t max_rank) {
  return Reader(open_adapter(path, spec.ignore_unknown_keys), spec, backend, max_rank).read();
}

void require_adapters(const Backend& backend) {
  if (!backend.has(Ability::kAdapters))
    throw StartupError(backend.name() + " does not compute adapters: set backend.device to cpu");
}

void check_adapter(const fs::path& adapter, const fs::path& model, Backend& backend, std::int64_t max_rank) {
  require_adapters(backend);
  std::error_code ignored;
  const Checkpoint checkpoint =
      fs::is_directory(model, ignored) ? read_hf_checkpoint(model, false) : read_gguf_checkpoint(model, false);
  read_adapter(adapter, checkpoint.spec, backend, max_rank);
}

}  // namespace quire
