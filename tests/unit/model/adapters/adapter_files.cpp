#include "tests/unit/model/adapters/adapter_files.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "core/model/formats/gguf/gguf_writer.h"
#include "core/model/layers/checkpoint.h"
#include "core/model/tools/synth.h"

namespace quire::test {

namespace {

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

std::int64_t matrices_of(const Change& change) {
  return std::max<std::int64_t>(1, change.num_experts);
}

// PEFT's name of the matrix with a GGUF name, from the layer's part on.
std::string peft_name(const std::string& gguf) {
  static const std::map<std::string, std::string> kNames{
      {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
      {"ffn_gate", "mlp.gate_proj"},  {"attn_output", "self_attn.o_proj"}, {"ffn_up", "mlp.up_proj"},
      {"ffn_down", "mlp.down_proj"},  {"ffn_gate_inp", "mlp.gate"}};
  if (gguf.starts_with("layers.")) return gguf;
  const std::size_t dot = gguf.find('.', 4);
  const std::string name = gguf.substr(dot + 1, gguf.rfind('.') - dot - 1);
  return "layers." + gguf.substr(4, dot - 4) + "." + kNames.at(name);
}

// Turns [experts][rows][cols] into [cols][rows * experts], with the expert counting fastest.
std::vector<float> experts_last(const std::vector<float>& values, std::int64_t experts, std::int64_t rows,
                                std::int64_t cols) {
  std::vector<float> out;
  for (std::int64_t col = 0; col < cols; ++col) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t expert = 0; expert < experts; ++expert)
        out.push_back(values[static_cast<std::size_t>((expert * rows + row) * cols + col)]);
    }
  }
  return out;
}

std::vector<float> transposed(const std::vector<float>& values, std::int64_t experts, std::int64_t rows,
                              std::int64_t cols) {
  std::vector<float> out;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    for (std::int64_t col = 0; col < cols; ++col) {
      for (std::int64_t row = 0; row < rows; ++row)
        out.push_back(values[static_cast<std::size_t>((expert * rows + row) * cols + col)]);
    }
  }
  return out;
}

class SafetensorsWriter {
 public:
  void add(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
    const std::size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    header_[name] = {{"dtype", "F32"}, {"shape", std::move(shape)}, {"data_offsets", {begin, data_.size()}}};
  }
  void write(const std::filesystem::path& path) const {
    const std::string header = header_.dump();
    const std::uint64_t size = header.size();
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof size);
    out << header << data_;
  }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

}  // namespace

std::shared_ptr<const GgufFile> write_model(const std::string& shape, const std::string& types,
                                            const std::filesystem::path& path) {
  SynthSpec spec = find_synth_shape(shape).value();
  spec.types = find_synth_types(types).value();
  write_synthetic_gguf(spec, path, {});
  return GgufFile::open(path);
}

Change random_change(const std::string& name, std::int64_t inputs, std::int64_t outputs, std::int64_t rank,
                     std::int64_t num_experts, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Change out{name, inputs, outputs, rank, {}, {}, num_experts};
  for (std::int64_t i = 0; i < matrices_of(out) * rank * inputs; ++i)
    out.down.push_back(normal(random) / std::sqrt(static_cast<float>(inputs)));
  for (std::int64_t i = 0; i < matrices_of(out) * outputs * rank; ++i)
    out.up.push_back(0.1F * normal(random));
  return out;
}

std::vector<Change> changes_of(const std::shared_ptr<const GgufFile>& model, unsigned seed, std::int64_t rank) {
  std::mt19937 random(seed);
  const ModelSpec spec = make_gguf_checkpoint(model, "model").spec;
  std::vector<Change> out;
  for (std::int64_t layer = -1; layer < spec.config.num_layers; ++layer) {
    for (const WeightNeed& need : weight_needs(spec, layer)) {
      const std::string name = gguf_name(need.role, layer);
      const bool is_of_experts = need.product == WeightRole::kGateExperts || need.product == WeightRole::kDownExperts;
      const bool can_change = need.form == WeightForm::kProduct || is_of_experts;
      if (!can_change || (layer < 0 && need.role != WeightRole::kHead)) continue;
      if (model->find_tensor(name) == nullptr) continue;  // the head is the embedding
      const std::int64_t own_rank = rank > 0 ? rank : 1 + static_cast<std::int64_t>(random() % 9);
      out.push_back(random_change(name, need.cols, need.rows, own_rank, is_of_experts ? need.num_experts : 0,
                                  static_cast<unsigned>(random())));
    }
  }
  return out;
}

std::vector<Change> in_halves(std::vector<Change> changes, const GgufFile& model) {
  const std::string architecture = text_of(model, "general.architecture");
  const std::int64_t head = model.get_int(architecture + ".rope.dimension_count").value();
  for (Change& change : changes) {
    const bool rotated = change.name.ends_with("attn_q.weight") || change.name.ends_with("attn_k.weight");
    if (architecture != "llama" || !rotated) continue;
    const std::vector<float> pairs = change.up;
    for (std::int64_t row = 0; row < change.outputs; ++row) {
      const std::int64_t half = row / head * head + row % 2 * (head / 2) + row % head / 2;
      std::copy_n(pairs.begin() + row * change.rank, change.rank, change.up.begin() + half * change.rank);
    }
  }
  return changes;
}

Change of_expert(const Change& stack, std::int64_t expert, const std::string& name) {
  const std::int64_t down = stack.rank * stack.inputs;
  const std::int64_t up = stack.outputs * stack.rank;
  return {name,
          stack.inputs,
          stack.outputs,
          stack.rank,
          {stack.down.begin() + expert * down, stack.down.begin() + (expert + 1) * down},
          {stack.up.begin() + expert * up, stack.up.begin() + (expert + 1) * up},
          0};
}

Change part_of(const Change& stack, std::int64_t first, std::int64_t count, const std::string& name) {
  Change out{name, stack.inputs, count, stack.rank, stack.down, {}, stack.num_experts};
  for (std::int64_t expert = 0; expert < matrices_of(stack); ++expert) {
    const auto begin = stack.up.begin() + (expert * stack.outputs + first) * stack.rank;
    out.up.insert(out.up.end(), begin, begin + count * stack.rank);
  }
  return out;
}

void write_adapter(const std::vector<Change>& changes, const std::string& architecture,
                   const std::filesystem::path& path) {
  GgufWriter writer(path);
  writer.set("general.type", "adapter");
  writer.set("adapter.type", "lora");
  writer.set("general.architecture", std::string_view(architecture));
  writer.set("adapter.lora.alpha", kAdapterAlpha);
  for (const Change& change : changes) {
    std::vector down{change.inputs, change.rank};
    std::vector up{change.rank, change.outputs};
    if (change.num_experts > 0) {
      down.push_back(change.num_experts);
      up.push_back(change.num_experts);
    }
    writer.declare(change.name + ".lora_a", down, DType::kF32);
    writer.declare(change.name + ".lora_b", up, DType::kF32);
  }
  writer.begin_data();
  for (const Change& change : changes) {
    writer.append(bytes_of(change.down));
    writer.append(bytes_of(change.up));
  }
  writer.finish();
}

void write_peft(const std::vector<Change>& changes, const std::filesystem::path& directory, bool is_turned,
                const std::string& settings) {
  std::filesystem::create_directories(directory);
  nlohmann::json config{
      {"peft_type", "LORA"}, {"r", changes.front().rank},    {"lora_alpha", 6},
      {"bias", "none"},      {"target_modules", {"q_proj"}}, {"target_parameters", {"mlp.experts.gate_up_proj"}}};
  config.merge_patch(nlohmann::json::parse(settings));
  std::ofstream(directory / "adapter_config.json") << config;
  SafetensorsWriter writer;
  for (const Change& change : changes) {
    const std::string name = "base_model.model.model." + peft_name(change.name);
    const std::int64_t experts = matrices_of(change);
    const std::int64_t rows = experts * change.rank;
    std::vector<float> down = change.down;
    std::vector<float> up = change.up;
    std::int64_t from = change.inputs;
    std::int64_t to = change.outputs;
    if (is_turned) {
      down = transposed(change.up, experts, change.outputs, change.rank);
      up = transposed(change.down, experts, change.rank, change.inputs);
      std::swap(from, to);
    }
    if (change.num_experts > 0) up = experts_last(transposed(up, experts, to, change.rank), experts, change.rank, to);
    writer.add(name + ".lora_A.weight", {rows, from}, down);
    writer.add(name + ".lora_B.weight", {to, rows}, up);
  }
  writer.write(directory / "adapter_model.safetensors");
}

void write_merged(const std::filesystem::path& model, const std::vector<Change>& changes,
                  const std::filesystem::path& path) {
  std::ifstream in(model, std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  const auto view = GgufFile::parse(std::as_bytes(std::span(bytes)), "model");
  for (const Change& change : changes) {
    const GgufTensor* tensor = view->find_tensor(change.name);
    REQUIRE(tensor->type == DType::kF32);
    auto* weights =
        reinterpret_cast<float*>(bytes.data() + (reinterpret_cast<const char*>(tensor->data.data()) - bytes.data()));
    for (std::int64_t row = 0; row < matrices_of(change) * change.outputs; ++row) {
      const std::int64_t first = row / change.outputs * change.rank;  // the matrix's first row of `down`
      for (std::int64_t column = 0; column < change.inputs; ++column) {
        double sum = 0.0;
        for (std::int64_t k = 0; k < change.rank; ++k)
          sum += static_cast<double>(change.up[static_cast<std::size_t>(row * change.rank + k)]) *
                 static_cast<double>(change.down[static_cast<std::size_t>((first + k) * change.inputs + column)]);
        weights[row * change.inputs + column] +=
            static_cast<float>(sum * kAdapterAlpha / static_cast<double>(change.rank));
      }
    }
  }
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

std::vector<std::int32_t> tokens(std::int32_t count, std::int32_t first) {
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < count; ++i)
    ids.push_back((first + i * 37) % 300);
  return ids;
}

double difference(const Logits& a, const Logits& b) {
  double worst = 0.0;
  double largest = 0.0;
  for (std::size_t row = 0; row < a.size(); ++row) {
    for (std::size_t i = 0; i < a[row].size(); ++i) {
      worst = std::max(worst, static_cast<double>(std::abs(a[row][i] - b[row][i])));
      largest = std::max(largest, static_cast<double>(std::abs(b[row][i])));
    }
  }
  return worst / largest;
}

std::string text_of(const GgufFile& file, const char* key) {
  return std::string(file.get_string(key).value());
}

}  // namespace quire::test
