#include "core/model/tools/synth.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <thread>

#include "core/base/result.h"
#include "core/model/formats/gguf_writer.h"
#include "core/model/formats/quantize.h"
#include "core/model/tools/synth_vocab.h"

namespace quire {

namespace {

enum class SynthRole : std::uint8_t { kMatrix, kEmbedding, kNorm, kBias, kFrequencyDivisors };

struct SynthTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // ggml's order
  SynthRole role = SynthRole::kMatrix;
  DType type = DType::kF32;
  float deviation = 0.0F;
};

// SplitMix64: one well-mixed value per counter, so that any piece of a tensor can be made by any thread.
std::uint64_t mix(std::uint64_t counter) {
  std::uint64_t z = counter * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The sum of four uniform values: close to a normal one of deviation 1, and bounded by 3.5.
float bell(std::uint64_t random) {
  const std::uint64_t sum = (random & 0xFFFF) + ((random >> 16) & 0xFFFF) + ((random >> 32) & 0xFFFF) + (random >> 48);
  return (static_cast<float>(sum) / 65535.0F - 2.0F) * std::numbers::sqrt3_v<float>;
}

// The type itself, or the one that published files fall back to where rows are no multiple of its block.
DType fitting_type(DType type, std::int64_t cols) {
  while (cols % dtype_info(type).block_size != 0) {
    switch (type) {
      case DType::kQ4_K: type = DType::kQ5_0; break;
      case DType::kQ5_K: type = DType::kQ5_1; break;
      case DType::kQ6_K: type = DType::kQ8_0; break;
      case DType::kIQ4_XS:
      case DType::kQ3_K:
      case DType::kQ2_K: type = DType::kIQ4_NL; break;
      default: type = DType::kF16; break;
    }
  }
  return type;
}

// Published mixtures keep these matrices finer in the first and last eighth of the layers and in every third between.
bool is_sensitive_layer(std::int64_t layer, std::int64_t num_layers) {
  const std::int64_t eighth = num_layers / 8;
  return layer < eighth || layer >= num_layers - eighth || (layer - eighth) % 3 == 2;
}

float inverse_root(std::int64_t fan_in) {
  return 1.0F / std::sqrt(static_cast<float>(fan_in));
}

class TensorList {
 public:
  explicit TensorList(const SynthSpec& spec) : spec_(spec) {
    const ModelConfig& config = spec.config;
    add_rows("token_embd");
    if (!frequency_divisors(config.rope).empty())
      add_vector("rope_freqs", config.rope.rotary_dim / 2, SynthRole::kFrequencyDivisors);
    if (spec.is_encoder) {
      add_encoder();
    } else {
      add_decoder();
    }
  }

  static std::vector<float> frequency_divisors(const RopeConfig& rope);
  std::vector<SynthTensor> take() { return std::move(tensors_); }

 private:
  void add_vector(const std::string& stem, std::int64_t size, SynthRole role, const char* suffix = ".weight") {
    tensors_.push_back({.name = stem + suffix, .shape = {size}, .role = role, .type = DType::kF32, .deviation = 0.05F});
  }
  void add_matrix(const std::string& stem, std::int64_t rows, std::int64_t cols, SynthRole role, DType type,
                  float deviation) {
    tensors_.push_back({.name = stem + ".weight",
                        .shape = {cols, rows},
                        .role = role,
                        .type = fitting_type(type, cols),
                        .deviation = deviation});
  }
  // One row for each token.
  void add_rows(const std::string& stem) {
    const ModelConfig& config = spec_.config;
    add_matrix(stem, config.vocab_size, config.hidden_size, SynthRole::kEmbedding, spec_.types.embedding,
               3.0F * inverse_root(config.hidden_size));
  }
  void add_decoder();
  void add_layer(std::int64_t layer);
  void add_encoder();
  void add_encoder_layer(const std::string& prefix);
  void add_with_bias(const std::string& stem, std::int64_t rows, std::int64_t cols);
  void add_norm_with_bias(const std::string& stem);

  const SynthSpec& spec_;
  std::vector<SynthTensor> tensors_;
};

// Llama 3.1's scaling is stored in GGUF files as what each frequency is divided by.
std::vector<float> TensorList::frequency_divisors(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kLlama3) return rope.frequency_divisors;
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const auto unscaled = rope_frequencies(plain).inv_freq;
  const auto scaled = rope_frequencies(rope).inv_freq;
  std::vector<float> out;
  for (std::size_t i = 0; i < scaled.size(); ++i)
    out.push_back(static_cast<float>(unscaled[i] / scaled[i]));
  return out;
}

void TensorList::add_decoder() {
  const ModelConfig& config = spec_.config;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer)
    add_layer(layer);
  add_vector("output_norm", config.hidden_size, SynthRole::kNorm);
  if (!config.tied_head) add_rows("output");
}

void TensorList::add_with_bias(const std::string& stem, std::int64_t rows, std::int64_t cols) {
  add_matrix(stem, rows, cols, SynthRole::kMatrix, spec_.types.matrices, inverse_root(cols));
  add_vector(stem, rows, SynthRole::kBias, ".bias");
}

void TensorList::add_norm_with_bias(const std::string& stem) {
  add_vector(stem, spec_.config.hidden_size, SynthRole::kNorm);
  add_vector(stem, spec_.config.hidden_size, SynthRole::kBias, ".bias");
}

void TensorList::add_encoder() {
  const ModelConfig& config = spec_.config;
  const std::int64_t hidden = config.hidden_size;
  const float deviation = inverse_root(hidden);
  add_matrix("token_types", 2, hidden, SynthRole::kMatrix, DType::kF32, deviation);
  add_matrix("position_embd", config.max_context, hidden, SynthRole::kMatrix, DType::kF32, deviation);
  add_norm_with_bias("token_embd_norm");
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer)
    add_encoder_layer(fmt::format("blk.{}.", layer));
  if (spec_.num_labels == 0) return;
  add_with_bias("cls", hidden, hidden);
  add_with_bias("cls.output", spec_.num_labels, hidden);
}

void TensorList::add_encoder_layer(const std::string& prefix) {
  const ModelConfig& config = spec_.config;
  const std::int64_t hidden = config.hidden_size;
  for (const char* stem : {"attn_q", "attn_k", "attn_v"})
    add_with_bias(prefix + stem, hidden, hidden);
  add_with_bias(prefix + "attn_output", hidden, hidden);
  add_norm_with_bias(prefix + "attn_output_norm");
  add_with_bias(prefix + "ffn_up", config.ffn_size, hidden);
  add_with_bias(prefix + "ffn_down", hidden, config.ffn_size);
  add_norm_with_bias(prefix + "layer_output_norm");
}

void TensorList::add_layer(std::int64_t layer) {
  const ModelConfig& config = spec_.config;
  const std::string prefix = fmt::format("blk.{}.", layer);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t query_size = config.num_heads * config.head_dim;
  const std::int64_t kv_size = config.num_kv_heads * config.head_dim;
  const DType fine = is_sensitive_layer(layer, config.num_layers) ? spec_.types.sensitive : spec_.types.matrices;
  const auto matrix = [&](const char* stem, std::int64_t rows, std::int64_t cols, DType type, float gain = 1.0F) {
    add_matrix(prefix + stem, rows, cols, SynthRole::kMatrix, type, gain * inverse_root(cols));
  };
  add_vector(prefix + "attn_norm", hidden, SynthRole::kNorm);
  matrix("attn_q", query_size, hidden, spec_.types.matrices);
  matrix("attn_k", kv_size, hidden, spec_.types.matrices);
  matrix("attn_v", kv_size, hidden, fine);
  if (spec_.has_qkv_bias) {
    add_vector(prefix + "attn_q", query_size, SynthRole::kBias, ".bias");
    add_vector(prefix + "attn_k", kv_size, SynthRole::kBias, ".bias");
    add_vector(prefix + "attn_v", kv_size, SynthRole::kBias, ".bias");
  }
  if (config.has_qk_norm) {
    add_vector(prefix + "attn_q_norm", config.head_dim, SynthRole::kNorm);
    add_vector(prefix + "attn_k_norm", config.head_dim, SynthRole::kNorm);
  }
  matrix("attn_output", hidden, query_size, spec_.types.matrices);
  add_vector(prefix + "ffn_norm", hidden, SynthRole::kNorm);
  matrix("ffn_gate", config.ffn_size, hidden, spec_.types.matrices);
  matrix("ffn_up", config.ffn_size, hidden, spec_.types.matrices);
  matrix("ffn_down", hidden, config.ffn_size, fine, 2.0F);
}

void set_encoder_metadata(GgufWriter& out, const SynthSpec& spec) {
  const auto key = [&](const char* name) { return spec.config.architecture + "." + name; };
  out.set(key("attention.causal"), false);
  out.set(key("attention.layer_norm_epsilon"), static_cast<float>(spec.config.rms_eps));
  // llama.cpp's numbers: the mean of all positions, or a classifier.
  out.set(key("pooling_type"), std::uint32_t{spec.num_labels > 0 ? 4U : 1U});
}

void set_metadata(GgufWriter& out, const SynthSpec& spec) {
  const ModelConfig& config = spec.config;
  const RopeConfig& rope = config.rope;
  const auto key = [&](const char* name) { return config.architecture + "." + name; };
  const auto count = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  out.set("general.architecture", config.architecture);
  out.set("general.name", "synthetic-" + spec.name);
  out.set("general.file_type", spec.types.file_type);
  out.set(key("block_count"), count(config.num_layers));
  out.set(key("context_length"), count(config.max_context));
  out.set(key("embedding_length"), count(config.hidden_size));
  out.set(key("feed_forward_length"), count(config.ffn_size));
  out.set(key("attention.head_count"), count(config.num_heads));
  out.set(key("attention.head_count_kv"), count(config.num_kv_heads));
  out.set(key("attention.key_length"), count(config.head_dim));
  out.set(key("attention.value_length"), count(config.head_dim));
  if (spec.is_encoder) {
    set_encoder_metadata(out, spec);
  } else {
    out.set(key("attention.layer_norm_rms_epsilon"), static_cast<float>(config.rms_eps));
  }
  out.set(key("vocab_size"), count(config.vocab_size));
  out.set(key("rope.dimension_count"), count(rope.rotary_dim));
  out.set(key("rope.freq_base"), static_cast<float>(rope.base));
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kYarn) {
    out.set(key("rope.scaling.type"), rope.scaling == RopeScaling::kLinear ? "linear" : "yarn");
    out.set(key("rope.scaling.factor"), static_cast<float>(rope.factor));
  }
  if (rope.scaling == RopeScaling::kYarn) {
    out.set(key("rope.scaling.original_context_length"), count(static_cast<std::int64_t>(rope.original_context)));
  }
}

void set_tokenizer(GgufWriter& out, const SynthSpec& spec, const SynthVocab& vocab) {
  out.set("tokenizer.ggml.model", "gpt2");
  out.set("tokenizer.ggml.pre", spec.config.architecture == "llama" ? "llama-bpe" : "qwen2");
  out.set("tokenizer.ggml.tokens", std::span(vocab.tokens));
  out.set("tokenizer.ggml.token_type", std::span(vocab.types));
  out.set("tokenizer.ggml.merges", std::span(vocab.merges));
  out.set("tokenizer.ggml.bos_token_id", vocab.end_of_text);
  out.set("tokenizer.ggml.eos_token_id", vocab.end_of_turn);
  out.set("tokenizer.ggml.padding_token_id", vocab.end_of_text);
  out.set("tokenizer.ggml.add_bos_token", spec.is_encoder);
  if (spec.is_encoder) out.set("tokenizer.ggml.add_eos_token", true);
  if (!spec.is_encoder) out.set("tokenizer.chat_template", kSynthChatTemplate);
}

// Rows of control tokens and of bytes outside ASCII are smaller, so that what is sampled is nearly always plain text.
float row_scale(SynthVocab::Kind kind) {
  switch (kind) {
    case SynthVocab::Kind::kPlainAscii: return 1.0F;
    case SynthVocab::Kind::kOtherBytes: return 0.3F;
    case SynthVocab::Kind::kControl: break;
  }
  return 0.1F;
}

class TensorFiller {
 public:
  TensorFiller(const SynthSpec& spec, const SynthVocab& vocab) : spec_(spec), vocab_(vocab) {}

  void fill(const SynthTensor& tensor, std::uint64_t tensor_index, GgufWriter& out) const {
    const std::int64_t cols = tensor.shape[0];
    const std::int64_t rows = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
    const std::int64_t piece_rows = std::max<std::int64_t>(1, kPieceElements / cols);
    const auto num_threads = static_cast<std::int64_t>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
    std::vector<std::vector<std::byte>> pieces(static_cast<std::size_t>(num_threads));
    for (std::int64_t begin = 0; begin < rows; begin += piece_rows * num_threads) {
      std::vector<std::jthread> threads;
      for (std::int64_t t = 0; t < num_threads; ++t) {
        const std::int64_t first = std::min(begin + t * piece_rows, rows);
        const std::int64_t last = std::min(first + piece_rows, rows);
        auto& piece = pieces[static_cast<std::size_t>(t)];
        if (first == last) {
          piece.clear();
        } else {
          threads.emplace_back([this, &tensor, tensor_index, first, last, &piece] {
            piece = encode_rows(tensor, tensor_index, first, last);
          });
        }
      }
      threads.clear();  // joins
      for (const auto& piece : pieces) {
        if (!piece.empty()) out.append(piece);
      }
    }
  }

 private:
  static constexpr std::int64_t kPieceElements = 1 << 20;

  std::vector<std::byte> encode_rows(const SynthTensor& tensor, std::uint64_t tensor_index, std::int64_t first,
                                     std::int64_t last) const {
    const std::int64_t cols = tensor.shape[0];
    const std::uint64_t stream = mix(mix(spec_.seed) + tensor_index + 1);
    std::vector<float> values(static_cast<std::size_t>((last - first) * cols));
    if (tensor.role == SynthRole::kFrequencyDivisors) {
      values = TensorList::frequency_divisors(spec_.config.rope);
    } else {
      const float centre = tensor.role == SynthRole::kNorm ? 1.0F : 0.0F;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t element = static_cast<std::uint64_t>(first * cols) + i;
        values[i] = centre + tensor.deviation * bell(mix(stream + element));
      }
    }
    if (tensor.role == SynthRole::kEmbedding) scale_rows(values, first, cols);
    std::vector<std::byte> out(dtype_bytes(tensor.type, std::ssize(values)));
    quantize(tensor.type, values, out);
    return out;
  }

  void scale_rows(std::vector<float>& values, std::int64_t first, std::int64_t cols) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<std::size_t>(first) + i / static_cast<std::size_t>(cols);
      values[i] *= row_scale(vocab_.kinds[row]);
    }
  }

  const SynthSpec& spec_;
  const SynthVocab& vocab_;
};

}  // namespace

void write_synthetic_gguf(const SynthSpec& spec, const std::filesystem::path& path,
                          const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::string where = fmt::format("synthetic model '{}'", spec.name);
  check_config(spec.config, where);
  if (spec.config.vocab_size < kMinSynthVocab) {
    throw StartupError(fmt::format("{}: the vocabulary has fewer than {} tokens", where, kMinSynthVocab));
  }
  const SynthVocab vocab = make_synth_vocab(spec.config.vocab_size);
  const std::vector<SynthTensor> tensors = TensorList(spec).take();
  GgufWriter out(path);
  set_metadata(out, spec);
  set_tokenizer(out, spec, vocab);
  for (const SynthTensor& tensor : tensors)
    out.declare(tensor.name, tensor.shape, tensor.type);
  out.begin_data();
  const TensorFiller filler(spec, vocab);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    filler.fill(tensors[i], i, out);
    if (progress) progress(static_cast<std::int64_t>(i) + 1, std::ssize(tensors));
  }
  out.finish();
}

}  // namespace quire
