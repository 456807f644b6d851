#include "core/model/weight_sources.h"

#include <fmt/core.h>

namespace quire {

namespace {

class LayerCollector {
 public:
  LayerCollector(const ModelConfig& config, const TensorNames& names, TensorTable& tensors, std::int64_t layer)
      : config_(config), names_(names), tensors_(tensors), prefix_(fmt::format("{}{}.", names.layer_prefix, layer)) {}

  LayerSources collect() {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t query_size = config_.num_heads * config_.head_dim;
    const std::int64_t kv_size = config_.num_kv_heads * config_.head_dim;
    LayerSources layer;
    layer.attention_norm = norm(names_.attention_norm, hidden);
    layer.qkv = stack({{names_.query, query_size}, {names_.key, kv_size}, {names_.value, kv_size}}, hidden);
    if (config_.has_qk_norm) {
      layer.query_norm = norm(names_.query_norm, config_.head_dim);
      layer.key_norm = norm(names_.key_norm, config_.head_dim);
    }
    layer.attention_output = stack({{names_.attention_output, hidden}}, query_size);
    layer.ffn_norm = norm(names_.ffn_norm, hidden);
    layer.gate_up = stack({{names_.gate, config_.ffn_size}, {names_.up, config_.ffn_size}}, hidden);
    layer.ffn_down = stack({{names_.down, hidden}}, config_.ffn_size);
    return layer;
  }

 private:
  struct Part {
    const std::string& stem;
    std::int64_t rows;
  };

  std::vector<float> norm(const std::string& stem, std::int64_t size) {
    return tensors_.take_vector(prefix_ + stem + ".weight", size);
  }

  // A bias that only some of the stacked parts have is zero for the others.
  LinearSource stack(const std::vector<Part>& parts, std::int64_t cols) {
    LinearSource out;
    std::int64_t num_rows = 0;
    for (const Part& part : parts) {
      out.parts.push_back(tensors_.take_matrix(prefix_ + part.stem + ".weight", part.rows, cols));
      if (const std::string name = prefix_ + part.stem + ".bias"; tensors_.contains(name)) {
        const std::vector<float> bias = tensors_.take_vector(name, part.rows);
        out.bias.resize(static_cast<std::size_t>(num_rows));
        out.bias.insert(out.bias.end(), bias.begin(), bias.end());
      }
      num_rows += part.rows;
    }
    if (!out.bias.empty()) out.bias.resize(static_cast<std::size_t>(num_rows));
    return out;
  }

  const ModelConfig& config_;
  const TensorNames& names_;
  TensorTable& tensors_;
  std::string prefix_;
};

}  // namespace

WeightSources collect_weights(const ModelConfig& config, const TensorNames& names, TensorTable& tensors) {
  WeightSources out;
  out.embedding = tensors.take_matrix(names.embedding, config.vocab_size, config.hidden_size);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    out.layers.push_back(LayerCollector(config, names, tensors, layer).collect());
  }
  out.final_norm = tensors.take_vector(names.final_norm, config.hidden_size);
  out.head = config.tied_head ? out.embedding : tensors.take_matrix(names.head, config.vocab_size, config.hidden_size);
  return out;
}

}  // namespace quire
