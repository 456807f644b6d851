#include "core/model/tools/inspect.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/model/architectures/hf_families.h"
#include "core/model/architectures/registry.h"
#include "core/model/encode/towers/families.h"
#include "core/model/parts/parts.h"
#include "core/model/tools/synth.h"
#include "kernels/check.h"

namespace quire {

namespace {

struct ToolNote {
  std::string_view architecture;
  std::string_view format;
};

// Formats in the families' published templates; the file's own template decides.
constexpr ToolNote kToolFormats[] = {{"llama", "llama3_json, mistral"},
                                     {"qwen2", "hermes"},
                                     {"qwen2vl", "hermes"},
                                     {"qwen3", "hermes"},
                                     {"qwen3vl", "hermes"},
                                     {"qwen3moe", "hermes, qwen3_coder"},
                                     {"qwen3vlmoe", "hermes"},
                                     {"qwen35", "qwen3_coder"},
                                     {"qwen35moe", "qwen3_coder"},
                                     {"qwen3next", "hermes, qwen3_coder"},
                                     {"gemma4", "gemma4"},
                                     {"gpt-oss", "harmony"},
                                     {"gptoss", "harmony"},
                                     {"mistral3", "mistral"},
                                     {"mistral4", "mistral"},
                                     {"deepseek2", "deepseek_v31, deepseek_v32, glm45, kimi_k2"},
                                     {"glm4moe", "glm45"},
                                     {"nemotron_h_moe", "qwen3_coder"},
                                     {"lfm2", "lfm2, lfm2.5"},
                                     {"lfm2moe", "lfm2"},
                                     {"granite", "granite"},
                                     {"granitemoe", "granite"},
                                     {"granitehybrid", "granite"},
                                     {"cohere2", "command_r7b"},
                                     {"seed_oss", "seed_oss"},
                                     {"apertus", "apertus"},
                                     {"step35", "qwen3_coder"}};

// Notes of the page on towers, by projector.
struct TowerNote {
  std::string_view projector;
  std::string_view models;
  std::string_view architectures;  // text models with such towers, by GGUF's names
  std::string_view forms;          // the trained form; llama.cpp's in brackets where it differs
};

constexpr TowerNote kTowerNotes[] = {
    {"qwen3vl_merger", "Qwen3-VL, Qwen3.5", "qwen3vl, qwen3vlmoe, qwen35, qwen35moe",
     "stretched, bicubic, 65536 to 16777216 pixels unless the file says (black bars, bilinear, 8 to 4096 tokens); erf "
     "GELU in the merger (tanh)"},
    {"qwen2.5vl_merger", "Qwen2.5-VL", "qwen2vl",
     "stretched, bicubic, 3136 to 12845056 pixels unless the file says (black bars, bilinear, 8 to 4096 tokens); erf "
     "GELU in the merger (tanh)"},
    {"qwen2vl_merger", "Qwen2-VL", "qwen2vl", "as Qwen2.5-VL"},
    {"glm4v", "GLM-4V", "glm4, glm4moe",
     "stretched, bicubic, a short side enlarged to a row, 6272 to 4816896 pixels unless the file says (black bars, "
     "bilinear, 8 to 4096 tokens)"},
    {"minimax_m3", "MiniMax-M3", "minimax-m2", "stretched, bicubic, 8 to 576 tokens unless the file says"},
    {"gemma4v", "Gemma 4", "gemma4",
     "stretched, bicubic, scaled up or down to fill 280 tokens unless the file says (black bars, bilinear, 40 to 280 "
     "tokens); tanh GELU "
     "(quick GELU); images of models with per-layer embeddings are causal (bidirectional)"},
    {"gemma3", "Gemma 3", "gemma3",
     "stretched to a square, bilinear with antialiasing (black bars, bilinear); line breaks around the image (none)"},
    {"gemma4uv", "Gemma 4 without an encoder", "gemma4", "as Gemma 4"},
    {"pixtral", "Pixtral, Mistral 3", "llama, mistral3",
     "stretched, bicubic, at most image_size on a side unless the file says (black bars, bilinear, 8 to 1024 tokens)"},
    {"mlp", "LLaVA 1.5, LLaVA 1.6, Granite Vision", "llama, qwen2, granite",
     "class token first (last, with the positions of a first one); 1.5: the middle is cut out (bars); 1.6: overview "
     "first, tiles joined without bars (tiles first, with bars)"},
    {"internvl", "InternVL 3", "qwen2, qwen3",
     "tiles of the closest aspect ratio, stretched; no overview of one tile; class token first (black bars, an "
     "overview "
     "always, class token last)"},
    {"idefics3", "SmolVLM, Idefics 3", "llama",
     "stretched, Lanczos; the overview alone of a small image (black bars, cubic, tiles always)"},
    {"llama4", "Llama 4", "llama4",
     "up to 16 tiles with separators, bars at the right and below, bilinear (up to 9 tiles, no separators, columns "
     "first)"},
    {"kimivl", "Kimi-VL", "deepseek2",
     "shrunk to 1024 tokens at most, bicubic, bars at the right and below; bicubic positions (black bars on both "
     "sides, bilinear, 8 tokens at least)"},
    {"kimik25", "Kimi K2.5", "deepseek2",
     "shrunk to the file's limit, bicubic, bars at the right and below (black bars on both sides)"},
    {"lfm2", "LFM2-VL", "lfm2",
     "64 to 256 tokens, or tiles of 512 pixels, stretched, bilinear with antialiasing (bilinear, tiles with black "
     "bars)"},
    {"phi4", "Phi-4 vision", "phi3",
     "stretched, bilinear with antialiasing, the file's limits of pixels (black bars, bilinear)"},
    {"dots_ocr", "dots.ocr", "qwen2",
     "stretched, bicubic, the file's limits of pixels (black bars, cubic without antialiasing)"},
    {"paddleocr", "PaddleOCR-VL", "paddleocr",
     "stretched, bicubic, a short side enlarged to a row, the file's limits of pixels; positions between the two "
     "nearest (black bars, bilinear; positions antialiased)"},
    {"resampler", "MiniCPM-V 2.6 to 4.5", "qwen2, qwen3, llama, minicpm",
     "slices and overview stretched, bicubic (overview bilinear, slices with black bars)"},
    {"minicpmv4_6", "MiniCPM-V 4.6", "qwen35", "as MiniCPM-V 4.5"},
};

constexpr std::string_view kFormats =
    "\n## Quantised weights\n\n"
    "GGUF: all block types. Hugging Face directories: FP8 (E4M3, scales by blocks, rows or matrices),\n"
    "compressed-tensors (FP8, W4A16, W8A16, W8A8, NVFP4), GPTQ of 2, 3, 4 and 8 bits, AWQ of 4 bits, MXFP4, and\n"
    "Model Optimizer's FP8 and NVFP4. Weights have exactly the file's values; a file whose values would not be exact\n"
    "(eight bits with zeros beside their middle or with scales that a 16-bit float does not hold) is refused.\n\n"
    "What a file says about activations and about the cache is not applied. Weights of integers, of MXFP4 and of "
    "NVFP4\n"
    "meet activations rounded to eight bits with one scale for each 32 features, computed again in every step; FP8 and "
    "float\n"
    "weights meet float activations. Both are at least as precise as what the files ask for; logits differ from those\n"
    "of engines that round the activations of a whole row by one scale.\n";

constexpr std::string_view kFiles =
    "\n## Files as other tools write them\n\n"
    "The rule is one for every file (GGUF metadata, `config.json`, `generation_config.json`, tokenizers, adapters): a "
    "setting\n"
    "is applied, or it is a warning in the log because it changes nothing that is computed, or the start is refused "
    "with "
    "its\n"
    "name. `quire inspect` prints the same warnings.\n\n"
    "| in the file | what Quire does |\n| --- | --- |\n"
    "| a GGUF key of another type: an integer of any width, a whole real, a boolean as a number, digits or `true` in a "
    "string, a list of one | understood; another value is refused by the key's name |\n"
    "| several ids in `eos_token_id`; `eos_token_id` in `config.json` alone | each ends a generation; "
    "`generation_config.json` counts first |\n"
    "| `rope_theta` beside, in `rope_scaling` or in `rope_parameters` | the same in every family |\n"
    "| YaRN and linear scaling | the context is the one that the rotation was made for times the factor, where that is "
    "more than the file states |\n"
    "| dynamic scaling; a window in some layers of Qwen2 and Qwen3; a `scheduler.max_model_len` above the model's "
    "context | "
    "the shorter context is served, with a warning |\n"
    "| sampling defaults outside a request's ranges | refused |\n"
    "| keys of other tools and of training (`transformers.js_config`, `is_llama_config`, lengths, versions) | a "
    "warning "
    "|\n"
    "| another key that is not known | refused; `model.ignore_unknown_keys: true` makes it a warning |\n"
    "| trailing dimensions of one | nothing |\n"
    "| tokens beyond the embedding | left out with a warning where neither a client's text nor the chat template "
    "yields them, else refused |\n"
    "| a checkpoint without a head, of a class that does not generate or beside `modules.json` | gives embeddings |\n"
    "| an adapter's `rank_pattern`, `alpha_pattern`, `use_rslora` | applied; `r` must be the matrices' rank |\n"
    "| an adapter of PiSSA, OLoRA, LoftQ, CorDA, DoRA or QALoRA; `bias`, `modules_to_save` | refused with the way out "
    "|\n"
    "| a Git LFS pointer, an HTML page, an incomplete download, an archive, a dangling link of the hub's cache, an "
    "mmproj, "
    "an adapter, a folder of GGUF files in the model's place | refused with what it is and what to do |\n";

// Families without another engine's reference in the test material.
constexpr std::string_view kReferenceAlone[] = {"gptoss", "qwen2vl", "qwen3vl", "qwen3vlmoe"};

// Model types whose configuration decides between two architectures.
struct SharedType {
  std::string_view architecture;
  std::string_view model_type;
};
constexpr SharedType kSharedTypes[] = {
    {"gemma-embedding", "gemma3_text"}, {"nemotron_h_moe", "nemotron_h"}, {"nomic-bert-moe", "nomic_bert"}};

template <class Has>
void note(std::vector<std::string>& out, const ModelSpec& spec, const char* text, const Has& has) {
  const auto count = std::ranges::count_if(spec.layers, has);
  if (count == 0) return;
  const bool is_everywhere = count == std::ssize(spec.layers);
  out.push_back(is_everywhere ? text : fmt::format("{} in some layers", text));
}

std::string features_of(const ModelSpec& spec) {
  using Kind = FeedForwardSpec::Kind;
  std::vector<std::string> out;
  const auto attends = [](auto has) {
    return [has](const LayerSpec& layer) { return mixer_part(layer).has_heads() && has(layer.attention); };
  };
  if (!spec.is_causal) out.emplace_back("encoder");
  for (const Part* const part : mixer_parts()) {
    if (*part->name() != 0)
      note(out, spec, part->name(), [&](const LayerSpec& layer) { return &mixer_part(layer) == part; });
  }
  note(out, spec, "window", attends([](const AttentionSpec& attention) { return attention.window > 0; }));
  note(out, spec, "chunks", attends([](const AttentionSpec& attention) { return attention.chunk > 0; }));
  note(out, spec, "sinks", attends([](const AttentionSpec& attention) { return attention.has_sinks; }));
  note(out, spec, "softcap", attends([](const AttentionSpec& attention) { return attention.softcap > 0.0; }));
  note(out, spec, "shared K and V", attends([](const AttentionSpec& attention) { return attention.kv_source >= 0; }));
  note(out, spec, "gated attention",
       attends([](const AttentionSpec& attention) { return attention.gate != OutputGate::kNone; }));
  note(out, spec, "no positions", attends([&](const AttentionSpec& attention) {
         return attention.rope < 0 && !spec.has_positions && attention.alibi == 0.0;
       }));
  note(out, spec, "experts", [](const LayerSpec& layer) {
    return layer.feed_forward.kind == Kind::kExperts || layer.feed_forward.kind == Kind::kBoth;
  });
  note(out, spec, "shared expert", [](const LayerSpec& layer) { return layer.feed_forward.shared_size > 0; });
  if (spec.per_layer_size > 0) out.emplace_back("per-layer embeddings");
  if (spec.num_streams > 1) out.emplace_back("several residual streams");
  note(out, spec, "sparse feed-forward",
       [](const LayerSpec& layer) { return layer.feed_forward.sparsity.has_value(); });
  if (!spec.dense_sizes.empty()) out.emplace_back("dense modules");
  return fmt::format("{}", fmt::join(out, ", "));
}

struct Shapes {
  std::set<std::string> names;
  std::string features;
};

Shapes shapes_of(std::string_view architecture) {
  Shapes out;
  for (const std::string& name : synth_shape_names()) {
    const SynthSpec spec = find_synth_shape(name).value();
    const std::string_view own = spec.family ? spec.family->architecture : spec.config.architecture;
    if (own != architecture) continue;
    out.names.insert(name);
    const std::string features = spec.family ? features_of(read_family_shape(*spec.family).spec) : "";
    if (features.size() > out.features.size()) out.features = features;
  }
  return out;
}

// "glm4, glm4moe" has "glm4".
bool lists_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::string_view each = list.substr(0, list.find(", "));
    if (each == word) return true;
    list.remove_prefix(std::min(each.size() + 2, list.size()));
  }
  return false;
}

// Models with a tower whose text model has this architecture.
std::string towers_of(std::string_view architecture) {
  std::vector<std::string_view> models;
  for (const TowerNote& tower : kTowerNotes) {
    if (lists_word(tower.architectures, architecture)) models.push_back(tower.models);
  }
  return fmt::format("{}", fmt::join(models, ", "));
}

std::string images_section() {
  std::string out =
      "\n## Images\n\n"
      "A tower is read by the projector that its file names (`clip.projector_type`). `model.image_preprocessing: "
      "trained`,\n"
      "the default, prepares images as the model's own processor does; what `llama.cpp` does otherwise is in brackets. "
      "In both\n"
      "forms filters are exact to the bit, and rows and logits are compared with those of llama.cpp in its form where "
      "the test\n"
      "material is present.\n\n"
      "| models | projector | text models | form |\n| --- | --- | --- | --- |\n";
  for (const std::string& projector : tower_projectors()) {
    const auto* note = std::ranges::find(kTowerNotes, projector, &TowerNote::projector);
    QUIRE_CHECK(note != std::end(kTowerNotes), "a tower that the page says nothing of");
    out += fmt::format("| {} | {} | {} | {} |\n", note->models, projector, note->architectures, note->forms);
  }
  return out;
}

std::string model_types_of(std::string_view architecture) {
  std::vector<std::string_view> types;
  for (const HfFamily& family : hf_families()) {
    if (family.architecture == architecture) types.push_back(family.model_type);
  }
  for (const SharedType& shared : kSharedTypes) {
    if (shared.architecture == architecture) types.push_back(shared.model_type);
  }
  return fmt::format("{}", fmt::join(types, ", "));
}

}  // namespace

std::string models_page() {
  std::string out =
      "# Models\n\n"
      "Made by `quire-dev architectures`; a test compares this page with what that prints.\n\n"
      "A GGUF file is read by its `general.architecture`, a Hugging Face directory by the `model_type` of its\n"
      "`config.json`. A file of another family, or with a key or tensor that may change what is computed and is not "
      "known,\n"
      "is refused in one line that names the nearest known one and the way out.\n\n"
      "Image towers with a projector listed under *Images* below are served: give the tower's file with `--mmproj`, or "
      "keep it\n"
      "beside the model's file; some Hugging Face directories contain the tower. A tower file with another projector "
      "is\n"
      "refused. Audio towers and other towers inside a model's files are left out, and so are layers that predict "
      "further\n"
      "tokens, unless they draft (`speculation.method: mtp`); the log says so. The column *images* names the models "
      "whose\n"
      "towers work with an architecture.\n\n"
      "Every family is compared with a scalar reference in double precision\n"
      "(`tests/unit/model/families_test.cpp`) in the tiny shapes below, which `quire synth` also writes, and in shapes "
      "drawn\n"
      "at random. For Hugging Face classes without a published checkpoint in the test material, a checkpoint made from "
      "the\n"
      "same weights must give the same (`tests/unit/model/hf/hf_classes_test.cpp`). *yes* in the column *other engine* "
      "says that\n"
      "the family's logits are also compared with those of llama.cpp, where the test material is present. The tool "
      "format is\n"
      "read from the file's own chat template; the column *tool format* names the formats of the published "
      "templates.\n\n"
      "| architecture | models | Hugging Face `model_type` | beside plain attention | images | tool format | shapes of "
      "`quire "
      "synth` | "
      "other engine |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Architecture& row : architectures()) {
    const Shapes shapes = shapes_of(row.name);
    const auto* tools = std::ranges::find(kToolFormats, row.name, &ToolNote::architecture);
    const bool is_alone = std::ranges::find(kReferenceAlone, row.name) != std::end(kReferenceAlone);
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", row.name, row.models, model_types_of(row.name),
                       shapes.features, towers_of(row.name), tools == std::end(kToolFormats) ? "" : tools->format,
                       fmt::join(shapes.names, ", "), is_alone ? "" : "yes");
  }
  return out + images_section() + std::string(kFormats) + std::string(kFiles);
}

}  // namespace quire
