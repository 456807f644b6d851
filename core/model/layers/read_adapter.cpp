// Adapters' files: GGUF as llama.cpp's converter writes it, and PEFT's directories (adapter_config.json beside
// adapter_model.safetensors).
#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/result.h"
#include "core/model/architectures/hf_families.h"
#include "core/model/architectures/registry.h"
#include "core/model/formats/gguf.h"
#include "core/model/formats/json_file.h"
#include "core/model/formats/safetensors.h"
#include "core/model/layers/adapter.h"

namespace quire {

namespace {

using Role = WeightRole;
namespace fs = std::filesystem;

// The two matrices of one change, by the role and layer (-1: of the model) of the matrix that they change.
struct Pair {
  const StoredTensor* down = nullptr;
  const StoredTensor* up = nullptr;
};

struct AdapterFile {
  std::string where;
  std::shared_ptr<const void> owner;
  std::vector<StoredTensor> tensors;
  std::function<double(std::int64_t rank)> scale;
  std::string gguf_architecture;  // empty: a PEFT directory
};

[[noreturn]] void fail(const AdapterFile& file, const std::string& what) {
  throw StartupError(fmt::format("{}: {}", file.where, what));
}

AdapterFile open_gguf_adapter(const fs::path& path) {
  const auto gguf = GgufFile::open(path);
  AdapterFile out{.where = path.string(), .owner = gguf, .tensors = {}, .scale = {}, .gguf_architecture = {}};
  if (gguf->get_string("general.type").value_or("") != "adapter" ||
      gguf->get_string("adapter.type").value_or("") != "lora")
    fail(out, "this is no LoRA adapter ('general.type' and 'adapter.type' say so)");
  if (gguf->metadata().contains("adapter.alora.invocation_tokens"))
    fail(out, "adapters that some tokens switch on are not supported");
  out.gguf_architecture = gguf->get_string("general.architecture").value_or("");
  const auto alpha = gguf->get_float("adapter.lora.alpha");
  if (!alpha) fail(out, "'adapter.lora.alpha' is missing");
  // llama.cpp's rule: without an alpha, the change is taken as it is.
  out.scale = [alpha = *alpha](std::int64_t rank) { return alpha == 0.0 ? 1.0 : alpha / static_cast<double>(rank); };
  for (const GgufTensor& tensor : gguf->tensors()) {
    StoredTensor& stored = out.tensors.emplace_back();
    stored.name = tensor.name;
    stored.type = tensor.type;
    stored.shape.assign(tensor.shape.rbegin(), tensor.shape.rend());
    stored.data = tensor.data;
  }
  return out;
}

bool is_set(const nlohmann::json* value) {
  return value != nullptr && !value->empty() && *value != false && *value != "none";
}

AdapterFile open_peft_adapter(const fs::path& directory) {
  AdapterFile out{.where = directory.string(), .owner = nullptr, .tensors = {}, .scale = {}, .gguf_architecture = {}};
  const auto raw = read_json_file(directory / "adapter_config.json");
  if (!raw) fail(out, "adapter_config.json is missing");
  const JsonObject config(*raw, (directory / "adapter_config.json").string());
  if (config.text("peft_type").value_or("LORA") != "LORA") config.fail("'peft_type' is not LORA");
  for (const char* key : {"use_dora", "bias", "fan_in_fan_out", "lora_bias", "rank_pattern", "alpha_pattern",
                          "modules_to_save", "layer_replication", "target_parameters", "alora_invocation_tokens"}) {
    if (is_set(config.find(key))) config.fail(fmt::format("'{}' is not supported", key));
  }
  const double alpha = config.number("lora_alpha").value_or(8.0);
  const bool by_root = config.boolean("use_rslora").value_or(false);
  out.scale = [=](std::int64_t rank) {
    return alpha / (by_root ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  };
  const auto file = std::make_shared<SafetensorsFile>(directory / "adapter_model.safetensors");
  out.tensors = file->tensors();
  out.owner = file;
  return out;
}

// What PEFT calls the matrix, from the layers' part of the name on: "layers.3.self_attn.q_proj", "lm_head".
std::string peft_name(Role role, std::int64_t layer) {
  std::string_view name = role_info(role).hf;
  if (name.empty()) return {};
  if (name.starts_with('^')) name.remove_prefix(1);
  return layer < 0 ? std::string(name) : fmt::format("layers.{}.{}", layer, name);
}

// Whether rows of queries and keys are halves of a head in Hugging Face's files, and pairs in GGUF's: where those of
// the architecture have pairs, as llama.cpp's converter makes them, but for families that have pairs in both.
bool swaps_halves(std::string_view architecture) {
  const auto known = std::ranges::find(architectures(), architecture, &Architecture::name);
  if (known == architectures().end() || known->rope != RopeStyle::kInterleaved) return false;
  return std::ranges::all_of(hf_families(), [&](const HfFamily& family) {
    return family.architecture != architecture || family.swaps_halves;
  });
}

class Reader {
 public:
  Reader(AdapterFile file, const ModelSpec& spec, Backend& backend, std::int64_t max_rank)
      : file_(std::move(file)), spec_(spec), backend_(backend), max_rank_(max_rank) {
    for (const LayerSpec& layer : spec_.layers) {
      if (layer.mixer != Mixer::kAttention || layer.attention.rope < 0) continue;
      rotates_ = true;
      has_pairs_ = spec_.ropes[static_cast<std::size_t>(layer.attention.rope)].style == RopeStyle::kInterleaved;
    }
    const double scale = file_.scale(1);
    hash({reinterpret_cast<const char*>(&scale), sizeof scale});
    for (const StoredTensor& tensor : file_.tensors)
      add(tensor);
  }

  std::shared_ptr<const Adapter> read() {
    const std::string& own = spec_.config.architecture;
    if (is_gguf() && file_.gguf_architecture != own)
      fail(file_, fmt::format("the adapter is for '{}', and the model is '{}'", file_.gguf_architecture, own));
    std::vector<Adapter::Group> layers(spec_.layers.size());
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
      read_group(static_cast<std::int64_t>(layer), layers[layer]);
    Adapter::Group model;
    read_group(-1, model);
    if (!pairs_.empty()) {
      const std::string& name = pairs_.begin()->first;
      const bool is_of_experts = name.find(is_gguf() ? "_exps." : ".experts.") != std::string::npos;
      fail(file_, fmt::format("'{}' is {} that an adapter can change", name,
                              is_of_experts ? "of experts, and no product" : "no product of this model"));
    }
    return std::make_shared<const Adapter>(std::move(layers), std::move(model),
                                           fmt::format("{:016x}{:016x}", hash_[0], hash_[1]));
  }

 private:
  bool is_gguf() const { return !file_.gguf_architecture.empty(); }

  void add(const StoredTensor& tensor) {
    hash(tensor.name);
    hash({reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()});
    const auto [name, is_up] = parts_of(tensor.name);
    Pair& pair = pairs_[name];
    (is_up ? pair.up : pair.down) = &tensor;
  }

  void hash(std::string_view bytes) {
    for (std::uint64_t& half : hash_)
      half = XXH3_64bits_withSeed(bytes.data(), bytes.size(), half);
  }

  // The changed matrix's name, and whether it is the second of the two.
  std::pair<std::string, bool> parts_of(const std::string& name) const {
    using Ending = std::pair<std::string_view, bool>;
    constexpr Ending kGguf[] = {{".lora_a", false}, {".lora_b", true}};
    constexpr Ending kPeft[] = {{".lora_A.weight", false},
                                {".lora_B.weight", true},
                                {".lora_A.default.weight", false},
                                {".lora_B.default.weight", true}};
    for (const auto& [ending, is_up] : is_gguf() ? std::span<const Ending>(kGguf) : std::span<const Ending>(kPeft)) {
      if (!name.ends_with(ending)) continue;
      std::string changed = name.substr(0, name.size() - ending.size());
      if (is_gguf()) return {changed, is_up};
      const std::size_t layers = changed.rfind("layers.");
      return {layers != std::string::npos ? changed.substr(layers) : changed.substr(changed.rfind('.') + 1), is_up};
    }
    fail(file_, fmt::format("'{}' is no part of a LoRA adapter", name));
  }

  void read_group(std::int64_t layer, Adapter::Group& out) {
    std::array<std::int64_t, kNumWeightRoles> num_outputs{};
    for (const WeightNeed& need : weight_needs(spec_, layer)) {
      if (need.form != WeightForm::kProduct || (layer < 0 && need.role != Role::kHead)) continue;
      std::int64_t& first = num_outputs[static_cast<std::size_t>(need.product)];
      const auto found = pairs_.find(is_gguf() ? gguf_name(need.role, layer) : peft_name(need.role, layer));
      if (found != pairs_.end()) {
        out[static_cast<std::size_t>(need.product)].push_back(pack(found->first, found->second, need, layer, first));
        pairs_.erase(found);
      }
      first += need.rows;
    }
  }

  LowRank pack(const std::string& name, const Pair& pair, const WeightNeed& need, std::int64_t layer,
               std::int64_t first_output) {
    if (pair.down == nullptr || pair.up == nullptr) fail(file_, fmt::format("'{}' has one of its two matrices", name));
    const std::int64_t rank = pair.down->shape.empty() ? 0 : pair.down->shape[0];
    if (pair.down->shape != std::vector<std::int64_t>{rank, need.cols} ||
        pair.up->shape != std::vector<std::int64_t>{need.rows, rank} || rank == 0)
      fail(file_, fmt::format("the matrices of '{}' do not fit the model's, of [{}, {}]", name, need.rows, need.cols));
    if (rank > max_rank_)
      fail(file_, fmt::format("'{}' has the rank {}; at most {} is computed", name, rank, max_rank_));
    LowRank out;
    out.first_output = first_output;
    out.down = load(rows_of(*pair.down), rank, need.cols, 1.0F);
    out.up = load(ordered(rows_of(*pair.up), need, layer), need.rows, rank, static_cast<float>(file_.scale(rank)));
    return out;
  }

  // As the file has them where the type takes rows of any length; else decoded.
  struct Rows {
    DType type = DType::kF32;
    std::vector<std::byte> bytes;
  };
  Rows rows_of(const StoredTensor& tensor) const {
    if (!tensor.type)
      fail(file_, fmt::format("'{}' is of the type {}, which is not computed", tensor.name, tensor.type_name));
    Rows out;
    if (dtype_info(*tensor.type).block_size == 1) {
      out.type = *tensor.type;
      out.bytes.assign(tensor.data.begin(), tensor.data.end());
      return out;
    }
    const std::int64_t count = tensor.shape[0] * tensor.shape[1];
    out.bytes.resize(dtype_bytes(DType::kF32, count));
    dequantize(*tensor.type, tensor.data.data(), count, reinterpret_cast<float*>(out.bytes.data()));
    return out;
  }

  std::unique_ptr<Linear> load(const Rows& matrix, std::int64_t rows, std::int64_t cols, float scale) {
    return backend_.load_linear_beside(
        {.type = matrix.type, .rows = rows, .cols = cols, .data = matrix.bytes.data(), .scale = scale});
  }

  // Rows of queries and keys in the order in which the model's have them. Rows of pairs of groups come as the product
  // has them (WeightNeed::gate_rows).
  Rows ordered(Rows rows, const WeightNeed& need, std::int64_t layer) const {
    std::vector<std::int64_t> order;
    if (need.gate_rows > 0) {
      for (std::int64_t half = 0; half < 2; ++half) {
        for (std::int64_t at = half * need.gate_rows; at < need.rows; at += 2 * need.gate_rows) {
          for (std::int64_t i = 0; i < need.gate_rows; ++i)
            order.push_back(at + i);
        }
      }
    } else if (is_turned(need.role, layer)) {
      const std::int64_t head = spec_.layers[static_cast<std::size_t>(layer)].attention.key_dim;
      const std::int64_t half = head / 2;
      for (std::int64_t row = 0; row < need.rows; ++row) {
        const std::int64_t at = row % head;
        order.push_back(row - at + (has_pairs_ ? at % 2 * half + at / 2 : at % half * 2 + at / half));
      }
    }
    if (order.empty()) return rows;
    Rows out{rows.type, std::vector<std::byte>(rows.bytes.size())};
    const auto size = static_cast<std::int64_t>(rows.bytes.size() / order.size());
    for (std::size_t row = 0; row < order.size(); ++row)
      std::copy_n(rows.bytes.begin() + order[row] * size, size,
                  out.bytes.begin() + static_cast<std::int64_t>(row) * size);
    return out;
  }

  // A GGUF adapter has pairs, PEFT's halves.
  bool is_turned(Role role, std::int64_t layer) const {
    if (layer < 0 || (role != Role::kQuery && role != Role::kKey) || has_pairs_ == is_gguf()) return false;
    return spec_.layers[static_cast<std::size_t>(layer)].mixer == Mixer::kAttention && rotates_ &&
           swaps_halves(spec_.config.architecture);
  }

  const AdapterFile file_;
  const ModelSpec& spec_;
  Backend& backend_;
  const std::int64_t max_rank_;
  bool rotates_ = false;               // any layer
  bool has_pairs_ = false;             // the model's rows of queries and keys
  std::map<std::string, Pair> pairs_;  // not read yet
  std::array<std::uint64_t, 2> hash_{1, 2};
};

}  // namespace

std::shared_ptr<const Adapter> read_adapter(const fs::path& path, const ModelSpec& spec, Backend& backend,
                                            std::int64_t max_rank) {
  std::error_code failed;
  AdapterFile file = fs::is_directory(path, failed) ? open_peft_adapter(path) : open_gguf_adapter(path);
  return Reader(std::move(file), spec, backend, max_rank).read();
}

}  // namespace quire
