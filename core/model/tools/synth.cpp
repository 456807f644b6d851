#include "core/model/tools/synth.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numbers>
#include <span>
#include <thread>

#include "core/base/result.h"
#include "core/model/formats/ggml_types.h"
#include "core/model/formats/gguf/gguf_writer.h"
#include "core/model/formats/gguf/quantize.h"
#include "core/model/tools/synth_vocab.h"

namespace quire {

namespace {

enum class SynthRole : std::uint8_t {
  kMatrix,
  kEmbedding,
  kNorm,  // and other factors near 1
  kBias,
  kDecay,  // negative
  kFrequencyDivisors
};

struct SynthTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // ggml's order
  SynthRole role = SynthRole::kMatrix;
  DType type = DType::kF32;
  float deviation = 0.0F;
};

// SplitMix64: a well-mixed value per counter, so that any thread can make any piece of a tensor.
std::uint64_t mix(std::uint64_t counter) {
  std::uint64_t z = counter * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The sum of four uniform values: nearly normal with deviation 1, and bounded by 3.5.
float bell(std::uint64_t random) {
  const std::uint64_t sum = (random & 0xFFFF) + ((random >> 16) & 0xFFFF) + ((random >> 32) & 0xFFFF) + (random >> 48);
  return (static_cast<float>(sum) / 65535.0F - 2.0F) * std::numbers::sqrt3_v<float>;
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
  TensorList(const SynthSpec& spec, const ModelSpec& model) : spec_(spec), model_(model) {
    const std::vector<WeightNeed> of_model = weight_needs(model, -1);
    add(of_model.front(), -1);
    if (!spec.family && !frequency_divisors(spec.config.rope).empty())
      add_vector("rope_freqs", spec.config.rope.rotary_dim / 2, SynthRole::kFrequencyDivisors);
    for (const char* stem : {"rope_freqs", "rope_factors_long", "rope_factors_short"}) {
      if (spec.family && spec.family->parts.find(std::string("^") + stem) != std::string::npos)
        add_vector(stem, std::ssize(model.config.rope.frequency_divisors), SynthRole::kFrequencyDivisors);
    }
    for (std::int64_t layer = 0; layer < model.config.num_layers; ++layer)
      add_all(weight_needs(model, layer), layer);
    if (model.next_tokens) add_all(weight_needs(model, model.config.num_layers), model.config.num_layers);
    add_all({of_model.begin() + 1, of_model.end()}, -1);
  }

  static std::vector<float> frequency_divisors(const RopeConfig& rope);
  std::vector<SynthTensor> take() { return std::move(tensors_); }

 private:
  void add_vector(const std::string& stem, std::int64_t size, SynthRole role, const char* suffix = ".weight") {
    tensors_.push_back({.name = stem + suffix, .shape = {size}, .role = role, .type = DType::kF32, .deviation = 0.05F});
  }
  void add_all(const std::vector<WeightNeed>& needs, std::int64_t layer);
  void add(const WeightNeed& need, std::int64_t layer);
  void add_matrix(const WeightNeed& need, SynthTensor tensor, std::int64_t layer);
  bool has_bias(WeightRole role) const;

  const SynthSpec& spec_;
  const ModelSpec& model_;
  std::vector<SynthTensor> tensors_;
};

// GGUF files store Llama 3.1's scaling as divisors of the frequencies.
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

bool TensorList::has_bias(WeightRole role) const {
  const std::string stem(role_info(role).gguf);
  const bool is_weight = role_info(role).suffix == ".weight" && !(role == WeightRole::kHead && model_.config.tied_head);
  if (spec_.family) return is_weight && (" " + spec_.family->biases + " ").find(" " + stem + " ") != std::string::npos;
  return spec_.has_qkv_bias && (stem == "attn_q" || stem == "attn_k" || stem == "attn_v");
}

// Adds the needs; biases come after the matrices of their product.
void TensorList::add_all(const std::vector<WeightNeed>& needs, std::int64_t layer) {
  std::vector<const WeightNeed*> biased;
  const auto flush = [&] {
    for (const WeightNeed* need : biased) {
      const std::int64_t size = need->form == WeightForm::kVector ? need->cols : need->rows;
      const std::string name = gguf_name(need->role, layer);
      add_vector(name.substr(0, name.rfind('.')), size, SynthRole::kBias, ".bias");
      if (need->form == WeightForm::kExperts) tensors_.back().shape.push_back(need->num_experts);
      if (need->bias_size > 0) tensors_.back().shape = {need->bias_size};
    }
    biased.clear();
  };
  for (const WeightNeed& need : needs) {
    if (!biased.empty() && biased.back()->product != need.product) flush();
    add(need, layer);
    if (has_bias(need.role) || need.has_bias) biased.push_back(&need);
  }
  flush();
}

void TensorList::add(const WeightNeed& need, std::int64_t layer) {
  if (need.is_optional || !need.constants.empty() || (need.role == WeightRole::kHead && model_.config.tied_head))
    return;
  SynthTensor tensor{.name = gguf_name(need.role, layer), .shape = {need.cols}, .role = SynthRole::kNorm};
  if (need.form != WeightForm::kVector) return add_matrix(need, std::move(tensor), layer);
  tensor.deviation = 0.05F;
  if (need.values == WeightValues::kDecays) tensor.role = SynthRole::kDecay;
  if (need.values == WeightValues::kOffsets) {
    tensor.role = SynthRole::kBias;
    tensor.deviation = 0.5F;
  }
  if (need.role == WeightRole::kTokenTypes) {
    tensor.role = SynthRole::kBias;
    tensor.shape = {model_.config.hidden_size, model_.num_token_types};
  }
  if (need.taps > 0) {
    tensor.shape = {need.taps, need.cols / need.taps};
    if (need.values != WeightValues::kDecays) {
      tensor.role = SynthRole::kBias;
      tensor.deviation = inverse_root(need.taps);
    }
  }
  tensors_.push_back(std::move(tensor));
}

void TensorList::add_matrix(const WeightNeed& need, SynthTensor tensor, std::int64_t layer) {
  const SynthTypes& types = spec_.types;
  const bool is_fine = layer >= 0 && need.is_sensitive && is_sensitive_layer(layer, model_.config.num_layers);
  tensor.shape = {need.cols, need.rows};
  tensor.role = SynthRole::kMatrix;
  tensor.type = fitting_type(is_fine ? types.sensitive : types.matrices, need.cols);
  tensor.deviation = need.gain * inverse_root(need.cols);
  if (need.form == WeightForm::kRows || need.role == WeightRole::kHead) {
    tensor.role = SynthRole::kEmbedding;
    tensor.type = fitting_type(types.embedding, need.cols);
    tensor.deviation = 3.0F * inverse_root(model_.config.hidden_size);
  }
  if (need.form == WeightForm::kExperts) {
    tensor.shape.push_back(need.num_experts);
  } else if (need.form == WeightForm::kPairs) {
    tensor.shape[1] *= need.num_experts;
  } else if (types.matrices == DType::kMXFP4) {
    tensor.type = fitting_type(DType::kQ8_0, need.cols);  // published files have this for experts only
  }
  if (need.is_exact || need.rows == 1) tensor.type = DType::kF32;
  if (need.rows == 1) tensor.shape.resize(1);
  tensors_.push_back(std::move(tensor));
}

void set_family_metadata(GgufWriter& out, const GgufFile& metadata) {
  for (const auto& [key, value] : metadata.metadata()) {
    const std::string name(key);
    if (const auto* text = std::get_if<std::string_view>(&value)) out.set(name, *text);
    if (const auto* flag = std::get_if<bool>(&value)) out.set(name, *flag);
    if (const auto* number = std::get_if<double>(&value)) out.set(name, static_cast<float>(*number));
    if (const auto* number = std::get_if<std::int64_t>(&value)) out.set(name, static_cast<std::uint32_t>(*number));
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) {
      const std::vector<std::int32_t> values(list->begin(), list->end());
      out.set(name, std::span(values));
    }
  }
}

void set_metadata(GgufWriter& out, const SynthSpec& spec) {
  const ModelConfig& config = spec.config;
  const RopeConfig& rope = config.rope;
  const auto key = [&](const char* name) { return config.architecture + "." + name; };
  const auto count = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  out.set("general.architecture", config.architecture);
  out.set(key("block_count"), count(config.num_layers));
  out.set(key("context_length"), count(config.max_context));
  out.set(key("embedding_length"), count(config.hidden_size));
  out.set(key("feed_forward_length"), count(config.ffn_size));
  out.set(key("attention.head_count"), count(config.num_heads));
  out.set(key("attention.head_count_kv"), count(config.num_kv_heads));
  out.set(key("attention.key_length"), count(config.head_dim));
  out.set(key("attention.value_length"), count(config.head_dim));
  out.set(key("attention.layer_norm_rms_epsilon"), static_cast<float>(config.rms_eps));
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

void set_tokenizer(GgufWriter& out, const ModelSpec& model, const SynthVocab& vocab) {
  const std::string& architecture = model.config.architecture;
  out.set("tokenizer.ggml.model", "gpt2");
  out.set("tokenizer.ggml.pre", architecture == "llama" ? "llama-bpe" : "qwen2");
  out.set("tokenizer.ggml.tokens", std::span(vocab.tokens));
  out.set("tokenizer.ggml.token_type", std::span(vocab.types));
  out.set("tokenizer.ggml.merges", std::span(vocab.merges));
  out.set("tokenizer.ggml.bos_token_id", vocab.end_of_text);
  out.set("tokenizer.ggml.eos_token_id", vocab.end_of_turn);
  out.set("tokenizer.ggml.padding_token_id", vocab.end_of_text);
  out.set("tokenizer.ggml.add_bos_token", !model.is_causal);
  if (!model.is_causal) out.set("tokenizer.ggml.add_eos_token", true);
  if (model.is_causal) out.set("tokenizer.chat_template", kSynthChatTemplate);
}

// Rows of control tokens and of non-ASCII bytes are smaller, so that sampled text is nearly always plain.
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
    const std::int64_t rows = num_elements(std::span(tensor.shape).subspan(1));
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
      values = spec_.family ? synth_rope_factors(tensor.name, cols) : TensorList::frequency_divisors(spec_.config.rope);
    } else {
      const float centre = tensor.role == SynthRole::kNorm ? 1.0F : 0.0F;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::uint64_t element = static_cast<std::uint64_t>(first * cols) + i;
        values[i] = centre + tensor.deviation * bell(mix(stream + element));
        if (tensor.role == SynthRole::kDecay) values[i] = -std::exp(values[i]);
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
      if (row < vocab_.kinds.size()) values[i] *= row_scale(vocab_.kinds[row]);
    }
  }

  const SynthSpec& spec_;
  const SynthVocab& vocab_;
};

}  // namespace

void write_synthetic_gguf(const SynthSpec& spec, const std::filesystem::path& path,
                          const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::string where = fmt::format("synthetic model '{}'", spec.name);
  std::optional<SynthFamily> family;
  if (spec.family) family = read_family_shape(*spec.family);
  if (!family) check_config(spec.config, where);
  const ModelSpec model = family ? family->spec : plain_spec(spec.config);
  if (model.config.vocab_size < kMinSynthVocab)
    throw StartupError(fmt::format("{}: the vocabulary has fewer than {} tokens", where, kMinSynthVocab));
  const SynthVocab vocab = make_synth_vocab(model.config.vocab_size);
  const std::vector<SynthTensor> tensors = TensorList(spec, model).take();
  GgufWriter out(path);
  if (family) {
    set_family_metadata(out, *family->metadata);
  } else {
    set_metadata(out, spec);
  }
  out.set("general.name", "synthetic-" + spec.name);
  out.set("general.file_type", spec.types.file_type);
  set_tokenizer(out, model, vocab);
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
