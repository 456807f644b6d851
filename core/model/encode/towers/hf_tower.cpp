#include "core/model/encode/towers/hf_tower.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/log.h"
#include "core/base/message_text.h"
#include "core/base/result.h"
#include "core/model/architectures/hf_config.h"
#include "core/model/encode/towers/hf_tower_file.h"
#include "core/model/formats/files/model_path.h"
#include "core/model/formats/hf/json_file.h"

namespace quire {

namespace {

using nlohmann::json;

struct TowerFiles {
  HfTowerFile& out;
  const JsonObject& config;     // the whole model's
  const JsonObject& vision;     // its vision_config
  const JsonObject& processor;  // for pictures; empty if the directory has none
  std::filesystem::path directory;
};

constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipDeviation = {0.26862954, 0.26130258, 0.27577711};
constexpr std::array<double, 3> kHalf = {0.5, 0.5, 0.5};
constexpr double kEps = 1e-6;  // for classes whose configuration has none
constexpr std::int64_t kMostPatch = 1 << 10;
constexpr std::int64_t kMostPooling = 1 << 6;
constexpr std::int64_t kMostSoftTokens = 1 << 20;

// --- keys
// ---------------------------------------------------------------------------------------------------------------

// A color key under the name that both kinds of files use; without normalisation it is `plain`.
void set_colours(const TowerFiles& files, const char* key, const std::array<double, 3>& otherwise, double plain) {
  std::vector<double> values(otherwise.begin(), otherwise.end());
  if (const json* given = files.processor.find(key); given != nullptr) {
    const bool is_list = given->is_array() && given->size() == 3 &&
                         std::ranges::all_of(*given, [](const json& each) { return each.is_number(); });
    if (!is_list) files.processor.fail(fmt::format("'{}' must hold three numbers", key));
    values = given->get<std::vector<double>>();
  }
  if (!files.processor.boolean("do_normalize").value_or(true)) std::ranges::fill(values, plain);
  files.out.set_vision(key, GgufValue(std::move(values)));
}

// Refuses a processor that skips a step which is always done here, or does one that never is.
void require_steps(const TowerFiles& files) {
  constexpr double kMostDeviation = 1e-6;
  const JsonObject& processor = files.processor;
  for (const char* const step : {"do_resize", "do_rescale"}) {
    if (!processor.boolean(step).value_or(true))
      processor.fail(fmt::format("'{}' is false, and images are always prepared with it", step));
  }
  for (const char* const step : {"do_pan_and_scan", "do_center_crop"}) {
    if (processor.boolean(step).value_or(false))
      processor.fail(fmt::format("'{}' is true, and images are never prepared with it", step));
  }
  const double factor = processor.number("rescale_factor").value_or(1.0 / 255.0);
  if (std::abs(factor * 255.0 - 1.0) > kMostDeviation) processor.fail("'rescale_factor' must be 1/255");
  if (const auto filter = processor.integer("resample")) files.out.set_integer("resample", *filter);
}

struct Sizes {
  std::int64_t width = 0;
  std::int64_t heads = 0;
  std::int64_t blocks = 0;
  std::int64_t ffn = 0;
  std::int64_t patch = 0;
  std::int64_t image = 0;
};

// Products of such numbers fit 64 bits.
std::int64_t bounded_integer(const JsonObject& object, const char* key, std::int64_t otherwise, std::int64_t most) {
  const std::int64_t value = object.integer(key).value_or(otherwise);
  if (value < 1 || value > most) object.fail(fmt::format("'{}' is {}, and it must lie from 1 to {}", key, value, most));
  return value;
}

std::int64_t read_patch(const JsonObject& vision, std::int64_t otherwise) {
  return bounded_integer(vision, "patch_size", otherwise, kMostPatch);
}

// Sizes under the names of most classes.
Sizes read_sizes(const JsonObject& vision, std::int64_t patch, std::int64_t image) {
  return {.width = vision.required_integer("hidden_size"),
          .heads = vision.required_integer("num_attention_heads"),
          .blocks = vision.required_integer("num_hidden_layers"),
          .ffn = vision.required_integer("intermediate_size"),
          .patch = read_patch(vision, patch),
          .image = image};
}

void set_common(const TowerFiles& files, const char* projector, const Sizes& sizes, double eps,
                const std::array<double, 3>& mean, const std::array<double, 3>& deviation) {
  HfTowerFile& out = files.out;
  out.set("general.architecture", GgufValue(std::string_view("clip")));
  out.set("clip.has_vision_encoder", GgufValue(true));
  out.set("clip.projector_type", GgufValue(std::string_view(projector)));
  out.set_integer("embedding_length", sizes.width);
  out.set_integer("attention.head_count", sizes.heads);
  out.set_integer("block_count", sizes.blocks);
  out.set_integer("feed_forward_length", sizes.ffn);
  out.set_integer("patch_size", sizes.patch);
  out.set_integer("image_size", sizes.image);
  out.set_vision("attention.layer_norm_epsilon", GgufValue(eps));
  set_colours(files, "image_mean", mean, 0.0);
  set_colours(files, "image_std", deviation, 1.0);
  require_steps(files);
}

// Sets an activation that mmproj files name, and refuses others.
void set_activation(const TowerFiles& files, const char* key, std::string_view otherwise) {
  const std::string name = files.vision.text(key).value_or(std::string(otherwise));
  if (name == "gelu_pytorch_tanh") return files.out.set("clip.use_gelu", GgufValue(true));
  if (name == "silu") return files.out.set("clip.use_silu", GgufValue(true));
  if (name != "quick_gelu")
    files.vision.fail(fmt::format("'{}' is '{}', which towers are not computed with", key, name));
}

void require(const TowerFiles& files, const char* key, std::int64_t only) {
  if (const auto value = files.vision.integer(key); value && *value != only)
    files.vision.fail(fmt::format("'{}' is {}, and towers are computed with {}", key, *value, only));
}

// The rotation of positions, in the older form and the newer one.
void require_rope(const TowerFiles& files, double base) {
  const auto check = [&](const JsonObject& rope) {
    if (rope.number("rope_theta").value_or(base) != base) rope.fail(fmt::format("'rope_theta' must be {}", base));
    if (rope.text("rope_type").value_or("default") != "default") rope.fail("'rope_type' must be 'default'");
  };
  check(files.vision);
  if (const auto rope = files.vision.object("rope_parameters")) check(*rope);
}

// A switch of the configuration that must have tensors.
void require_tensors(const TowerFiles& files, const char* key, std::string_view ending) {
  const bool is_on = files.vision.boolean(key).value_or(false);
  const auto& tensors = files.out.tensors();
  if (is_on && std::ranges::none_of(tensors, [&](const GgufTensor& each) { return each.name.ends_with(ending); }))
    files.vision.fail(fmt::format("'{}' is true, and no tensor is one of '{}'", key, ending));
}

// Limits of pixels, as processors of Qwen's families write them.
void set_pixels(const TowerFiles& files) {
  const auto size = files.processor.object("size");
  const auto limit = [&](const char* own, const char* edge) {
    const auto value = files.processor.integer(own);
    return value || !size ? value : size->integer(edge);
  };
  if (const auto least = limit("min_pixels", "shortest_edge")) files.out.set_integer("image_min_pixels", *least);
  if (const auto most = limit("max_pixels", "longest_edge")) files.out.set_integer("image_max_pixels", *most);
}

// The longest side of an image, for processors that state no other size.
std::optional<std::int64_t> longest_edge(const TowerFiles& files) {
  const auto size = files.processor.object("size");
  if (!size) return std::nullopt;
  if (const auto edge = size->integer("longest_edge")) return edge;
  const auto width = size->integer("width");
  if (width != size->integer("height")) size->fail("'width' and 'height' must be equal");
  return width;
}

// --- tensors
// ------------------------------------------------------------------------------------------------------------

// Frames of a patch that covers two points of time.
void add_frames(HfTowerFile& out, const std::string& name, const StoredTensor& tensor) {
  if (tensor.shape.size() != 5 || tensor.shape[2] != 2)
    out.fail(fmt::format("the tensor '{}' must have the shape [width, 3, 2, patch, patch]", tensor.name));
  const std::int64_t area = tensor.shape[3] * tensor.shape[4];
  for (const std::int64_t frame : {0, 1}) {
    out.add_reordered(frame == 0 ? name : name + ".1", tensor,
                      {tensor.shape[0], tensor.shape[1], tensor.shape[3], tensor.shape[4]},
                      [=](std::int64_t i) { return (i / area * 2 + frame) * area + i % area; });
  }
}

// [width][row][column][channel] as [width][channel][row][column].
void add_channels_first(HfTowerFile& out, const std::string& name, const StoredTensor& tensor, std::int64_t patch) {
  const std::int64_t area = patch * patch;
  if (tensor.shape.size() != 2 || tensor.shape[1] != 3 * area)
    out.fail(fmt::format("the tensor '{}' must have the shape [width, {}]", tensor.name, 3 * area));
  out.add_reordered(name, tensor, {tensor.shape[0], 3, patch, patch}, [=](std::int64_t i) {
    const std::int64_t inside = i % (3 * area);
    return i - inside + inside % area * 3 + inside / area;
  });
}

// Rows of heads whose halves turn together, as rows of neighbouring pairs.
void add_pairs(HfTowerFile& out, const std::string& name, const StoredTensor& tensor, std::int64_t heads) {
  const std::int64_t dim = heads > 0 && !tensor.shape.empty() ? tensor.shape[0] / heads : 0;
  if (tensor.shape.size() != 2 || dim < 2 || dim % 2 != 0 || dim * heads != tensor.shape[0])
    out.fail(fmt::format("the tensor '{}' has no {} heads", tensor.name, heads));
  const std::int64_t cols = tensor.shape[1];
  out.add_reordered(name, tensor, tensor.shape, [=](std::int64_t i) {
    const std::int64_t row = i / cols;
    const std::int64_t inside = row % dim;
    return (row - inside + inside % 2 * (dim / 2) + inside / 2) * cols + i % cols;
  });
}

using Put = std::function<bool(const std::string& name, const StoredTensor& tensor)>;

// All tensors of the tower under their names in mmproj files; `put` takes those of another form.
void add_tensors(const TowerFiles& files, HfTowerClass kind, const Put& put) {
  for (const StoredTensor* tensor : files.out.stored()) {
    const std::string name = mmproj_name(kind, tensor->name);
    if (!name.empty() && !put(name, *tensor)) files.out.add(name, *tensor);
  }
}

// --- families
// -----------------------------------------------------------------------------------------------------------

void set_qwen(const TowerFiles& files, const char* projector, const Sizes& sizes, const std::array<double, 3>& mean,
              const std::array<double, 3>& deviation) {
  require(files, "in_channels", 3);
  require(files, "in_chans", 3);
  require(files, "temporal_patch_size", 2);
  set_common(files, projector, sizes, kEps, mean, deviation);
  set_pixels(files);
  files.out.set_integer("spatial_merge_size", files.vision.integer("spatial_merge_size").value_or(2));
}

void describe_qwen2(const TowerFiles& files, const char* projector, const Sizes& sizes) {
  set_qwen(files, projector, sizes, kClipMean, kClipDeviation);
  add_tensors(files, HfTowerClass::kQwen, [&](const std::string& name, const StoredTensor& tensor) {
    if (name != "v.patch_embd.weight") return false;
    add_frames(files.out, name, tensor);
    return true;
  });
}

void describe_qwen2_vl(const TowerFiles& files) {
  const JsonObject& vision = files.vision;
  const std::int64_t width = vision.required_integer("embed_dim");
  const auto ratio = vision.number("mlp_ratio").value_or(4.0);
  set_activation(files, "hidden_act", "quick_gelu");
  describe_qwen2(files, "qwen2vl_merger",
                 {.width = width,
                  .heads = vision.required_integer("num_heads"),
                  .blocks = vision.required_integer("depth"),
                  .ffn = static_cast<std::int64_t>(static_cast<double>(width) * ratio),
                  .patch = read_patch(vision, 14),
                  .image = 560});
}

void describe_qwen25_vl(const TowerFiles& files) {
  const JsonObject& vision = files.vision;
  const std::int64_t blocks = vision.required_integer("depth");
  const json* whole = vision.find("fullatt_block_indexes");
  if (whole == nullptr || !whole->is_array() || whole->empty() || !whole->front().is_number_integer())
    vision.fail("'fullatt_block_indexes' must list the blocks that see all");
  const std::int64_t pattern = whole->front().get<std::int64_t>() + 1;
  std::vector<std::int64_t> expected;
  for (std::int64_t block = pattern - 1; pattern > 0 && block < blocks; block += pattern)
    expected.push_back(block);
  if (*whole != json(expected)) vision.fail("'fullatt_block_indexes' must name every block of a regular distance");
  require(files, "window_size", 112);
  files.out.set_integer("n_wa_pattern", pattern);
  set_activation(files, "hidden_act", "silu");
  describe_qwen2(files, "qwen2.5vl_merger",
                 {.width = vision.required_integer("hidden_size"),
                  .heads = vision.required_integer("num_heads"),
                  .blocks = blocks,
                  .ffn = vision.required_integer("intermediate_size"),
                  .patch = read_patch(vision, 14),
                  .image = 560});
}

void describe_qwen3_vl(const TowerFiles& files) {
  const JsonObject& vision = files.vision;
  std::vector<std::int64_t> levels;
  if (const json* given = vision.find("deepstack_visual_indexes"); given != nullptr) {
    if (!given->is_array() || !std::ranges::all_of(*given, [](const json& each) { return each.is_number_integer(); }))
      vision.fail("'deepstack_visual_indexes' must be a list of blocks");
    levels = given->get<std::vector<std::int64_t>>();
  }
  const std::int64_t patch = read_patch(vision, 16);
  const auto side = static_cast<std::int64_t>(
      std::lround(std::sqrt(static_cast<double>(vision.required_integer("num_position_embeddings")))));
  set_activation(files, "hidden_act", "gelu_pytorch_tanh");
  set_qwen(files, "qwen3vl_merger",
           {.width = vision.required_integer("hidden_size"),
            .heads = vision.required_integer("num_heads"),
            .blocks = vision.required_integer("depth"),
            .ffn = vision.required_integer("intermediate_size"),
            .patch = patch,
            .image = side * patch},
           kHalf, kHalf);
  add_tensors(files, HfTowerClass::kQwen, [&](const std::string& name, const StoredTensor& tensor) {
    constexpr std::string_view kLevel = "v.deepstack.";
    if (name == "v.patch_embd.weight") {
      add_frames(files.out, name, tensor);
      return true;
    }
    if (!name.starts_with(kLevel)) return false;
    // Numbered by level in these files, by block in mmproj files.
    const std::size_t dot = name.find('.', kLevel.size());
    const std::size_t level = std::stoul(name.substr(kLevel.size(), std::min<std::size_t>(dot - kLevel.size(), 6)));
    if (level >= levels.size()) files.out.fail(fmt::format("'{}' is of no level", tensor.name));
    files.out.add(fmt::format("{}{}{}", kLevel, levels[level], name.substr(dot)), tensor);
    return true;
  });
}

void describe_gemma3(const TowerFiles& files) {
  const JsonObject& vision = files.vision;
  const Sizes sizes = read_sizes(vision, 14, vision.integer("image_size").value_or(896));
  require(files, "num_channels", 3);
  set_activation(files, "hidden_act", "gelu_pytorch_tanh");
  set_common(files, "gemma3", sizes, vision.number("layer_norm_eps").value_or(kEps), kHalf, kHalf);
  const auto tokens = files.config.integer("mm_tokens_per_image").value_or(256);
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(tokens))));
  if (sizes.patch < 1 || side < 1 || sizes.image % (sizes.patch * side) != 0 || side * side != tokens)
    files.config.fail("'mm_tokens_per_image' must be a square that divides the patches of a side");
  files.out.set_integer("projector.scale_factor", sizes.image / sizes.patch / side);
  add_tensors(files, HfTowerClass::kSiglip, [&](const std::string& name, const StoredTensor& tensor) {
    if (name != "mm.soft_emb_norm.weight") return false;
    files.out.add_raised(name, tensor, 1.0F);
    return true;
  });
}

void describe_gemma4(const TowerFiles& files) {
  const JsonObject& vision = files.vision;
  const Sizes sizes = read_sizes(vision, 16, 224);
  require(files, "num_key_value_heads", sizes.heads);
  for (const char* const dim : {"head_dim", "global_head_dim"}) {
    if (sizes.heads > 0) require(files, dim, sizes.width / sizes.heads);
  }
  require(files, "default_output_length", 280);
  require_rope(files, 100.0);
  // mmproj files do not name it either: each form has its own.
  if (vision.text("hidden_activation").value_or("gelu_pytorch_tanh") != "gelu_pytorch_tanh")
    vision.fail("'hidden_activation' must be 'gelu_pytorch_tanh'");
  set_common(files, "gemma4v", sizes, vision.number("rms_norm_eps").value_or(kEps), {0.0, 0.0, 0.0}, {1.0, 1.0, 1.0});
  const std::int64_t pooling = bounded_integer(vision, "pooling_kernel_size", 3, kMostPooling);
  files.out.set_integer("projector.scale_factor", pooling);
  if (files.processor.integer("max_soft_tokens")) {
    const std::int64_t tokens = bounded_integer(files.processor, "max_soft_tokens", 1, kMostSoftTokens);
    files.out.set_integer("image_max_pixels", tokens * pooling * pooling * sizes.patch * sizes.patch);
  }
  add_tensors(files, HfTowerClass::kGemma4, [&](const std::string& name, const StoredTensor& tensor) {
    if (name != "v.patch_embd.weight") return false;
    add_channels_first(files.out, name, tensor, sizes.patch);
    return true;
  });
  require_tensors(files, "standardize", "std_bias");
  require_tensors(files, "use_clipped_linears", "input_max");
}

// The number of a token that the tokenizer was given beside its vocabulary.
std::int64_t added_token(const std::filesystem::path& directory, std::string_view text, std::int64_t otherwise) {
  const auto tokenizer = read_json_file(directory / "tokenizer.json");
  if (!tokenizer || !tokenizer->contains("added_tokens") || !(*tokenizer)["added_tokens"].is_array()) return otherwise;
  for (const json& each : (*tokenizer)["added_tokens"]) {
    const bool is_it = each.is_object() && each.contains("content") && each["content"] == text;
    if (is_it && each.contains("id") && each["id"].is_number_integer()) return each["id"].get<std::int64_t>();
  }
  return otherwise;
}

void describe_pixtral(const TowerFiles& files) {
  constexpr double kPixtralEps = 1e-5;
  constexpr std::int64_t kBreak = 12;  // [IMG_BREAK] of the published tokenizers
  const JsonObject& vision = files.vision;
  const std::int64_t edge = vision.integer("image_size").value_or(1024);
  const Sizes sizes = read_sizes(vision, 16, longest_edge(files).value_or(edge));
  require(files, "num_channels", 3);
  if (sizes.heads > 0) require(files, "head_dim", sizes.width / sizes.heads);
  require_rope(files, 10000.0);
  set_activation(files, "hidden_act", "gelu");
  set_common(files, "pixtral", sizes, kPixtralEps, kClipMean, kClipDeviation);
  files.out.set_integer("spatial_merge_size", files.config.integer("spatial_merge_size").value_or(1));
  add_tensors(files, HfTowerClass::kPixtral, [&](const std::string& name, const StoredTensor& tensor) {
    if (!name.ends_with(".attn_q.weight") && !name.ends_with(".attn_k.weight")) return false;
    add_pairs(files.out, name, tensor, sizes.heads);
    return true;
  });
  for (const char* name : {"model.language_model.embed_tokens.weight", "language_model.model.embed_tokens.weight",
                           "model.embed_tokens.weight"}) {
    const StoredTensor* table = files.out.stored(name);
    if (table == nullptr) continue;
    return files.out.add_row("v.token_embd.img_break", *table, added_token(files.directory, "[IMG_BREAK]", kBreak));
  }
  files.out.fail("the text model's embeddings are missing, one of which ends rows of patches");
}

// Keys of towers whose value the tensors show, which the classes do not use, or which are of videos and of parts that
// no family here has.
constexpr std::string_view kKeysWithoutEffect[] = {"hidden_size",
                                                   "image_size",
                                                   "max_position_embeddings",
                                                   "num_hidden_layers",
                                                   "num_image_tokens",
                                                   "out_hidden_size",
                                                   "position_embedding_size",
                                                   "projection_dim",
                                                   "projector_hidden_act",
                                                   "spatial_patch_size",
                                                   "standardize",
                                                   "tokens_per_second",
                                                   "use_clipped_linears",
                                                   "vision_use_head"};

struct HfTowerFamily {
  std::string_view model_type;
  std::string_view vision_type;  // the vision_config's model_type; empty: any
  void (*read)(const TowerFiles& files);
};

constexpr HfTowerFamily kHfTowers[] = {
    {"qwen2_vl", "", describe_qwen2_vl},       {"qwen2_5_vl", "", describe_qwen25_vl},
    {"qwen3_vl", "", describe_qwen3_vl},       {"qwen3_vl_moe", "", describe_qwen3_vl},
    {"qwen3_5", "", describe_qwen3_vl},        {"qwen3_5_moe", "", describe_qwen3_vl},
    {"gemma3", "", describe_gemma3},           {"gemma4", "", describe_gemma4},
    {"mistral3", "pixtral", describe_pixtral}, {"llava", "pixtral", describe_pixtral},
};

const HfTowerFamily* family_of(const json& config) {
  const auto word = [](const json& object, const char* key) {
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : std::string();
  };
  if (!config.contains("vision_config") || !config["vision_config"].is_object()) return nullptr;
  const std::string type = word(config, "model_type");
  const std::string vision = word(config["vision_config"], "model_type");
  const auto* const found = std::ranges::find_if(kHfTowers, [&](const HfTowerFamily& family) {
    return family.model_type == type && (family.vision_type.empty() || family.vision_type == vision);
  });
  return found == std::end(kHfTowers) ? nullptr : found;
}

// The processor of pictures, which newer directories hold beside those of other media.
json processor_of(const std::filesystem::path& directory) {
  const auto all = read_json_file(directory / "processor_config.json");
  const bool has_it = all && all->contains("image_processor") && (*all)["image_processor"].is_object();
  if (has_it) return (*all)["image_processor"];
  return read_json_file(directory / "preprocessor_config.json").value_or(json::object());
}

}  // namespace

bool has_hf_tower(const std::filesystem::path& directory) {
  try {
    const auto config = read_json_file(directory / "config.json");
    return config && family_of(*config) != nullptr;
  } catch (const StartupError&) {
    return false;
  }
}

std::shared_ptr<const GgufFile> open_hf_tower(const std::filesystem::path& directory, bool ignores_unknown) {
  const std::string where = (directory / "config.json").string();
  const auto raw = read_json_file(directory / "config.json");
  const HfTowerFamily* family = raw ? family_of(*raw) : nullptr;
  if (family == nullptr) throw StartupError(where + ": it describes no tower for images that is read");
  const JsonObject config(*raw, where);
  const JsonObject vision((*raw)["vision_config"], where + ": vision_config");
  const json processing = processor_of(directory);
  const JsonObject processor(processing, (directory / "preprocessor_config.json").string());
  auto out = std::make_shared<HfTowerFile>(directory.string(), open_safetensors_directory(directory));
  family->read({*out, config, vision, processor, directory});
  for (const std::string& key : ignored_hf_keys((*raw)["vision_config"], vision, ignores_unknown, kKeysWithoutEffect))
    log::warn("{}: the key '{}' is not known and is ignored", vision.where(), printable(key));
  return out;
}

std::filesystem::path find_tower(const std::filesystem::path& model) {
  if (auto beside = find_mmproj(model); !beside.empty()) return beside;
  std::error_code failed;
  return std::filesystem::is_directory(model, failed) && has_hf_tower(model) ? model : std::filesystem::path();
}

}  // namespace quire
