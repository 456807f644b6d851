// WeightSources: the weights of a model by the role they play, as views into its files; norms and biases decoded.
// Immutable after construction; any thread. One collector serves every file format: only the names differ.
#pragma once

#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "core/model/tensor_table.h"

namespace quire {

// What a file format calls each role. Within a layer `stem + ".weight"` and, where there is one, `stem + ".bias"`.
struct TensorNames {
  std::string embedding;  // whole names
  std::string final_norm;
  std::string head;
  std::string layer_prefix;  // before the layer's number: "blk."
  std::string attention_norm;
  std::string query;
  std::string key;
  std::string value;
  std::string attention_output;
  std::string query_norm;
  std::string key_norm;
  std::string ffn_norm;
  std::string gate;
  std::string up;
  std::string down;
};

// One operation: matrices stacked by rows, and a bias for all of them or none.
struct LinearSource {
  std::vector<WeightSource> parts;
  std::vector<float> bias;
};

struct LayerSources {
  std::vector<float> attention_norm;
  LinearSource qkv;
  std::vector<float> query_norm;  // empty where the model has none
  std::vector<float> key_norm;
  LinearSource attention_output;
  std::vector<float> ffn_norm;
  LinearSource gate_up;
  LinearSource ffn_down;
};

struct WeightSources {
  WeightSource embedding;
  std::vector<LayerSources> layers;
  std::vector<float> final_norm;
  WeightSource head;  // the embedding's own where the head is tied
};

// Takes every role from the table. Throws StartupError naming what is missing, mis-shaped or of an unsupported type.
WeightSources collect_weights(const ModelConfig& config, const TensorNames& names, TensorTable& tensors);

}  // namespace quire
