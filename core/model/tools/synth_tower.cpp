#include "core/model/tools/synth_tower.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/base/result.h"
#include "core/model/formats/ggml_types.h"
#include "core/model/formats/gguf/gguf_writer.h"
#include "core/model/formats/gguf/quantize.h"

namespace quire {

namespace {

struct TowerShape {
  std::string_view name;
  bool is_qwen = false;  // Qwen3-VL's form; else Gemma 3's
  std::int64_t width = 0;
  std::int64_t ffn = 0;
  std::int64_t heads = 0;
  std::int64_t blocks = 0;
  std::int64_t patch = 0;
  std::int64_t positions = 0;  // patches on a side of the table
  std::int64_t text_width = 0;
  std::vector<std::int64_t> levels{};  // blocks behind which deepstack takes rows
};

std::vector<TowerShape> shapes() {
  return {
      {"qwen3vl-2b-mmproj", true, 1024, 4096, 16, 24, 16, 48, 2048, {5, 11, 17}},
      {"qwen3vl-4b-mmproj", true, 1024, 4096, 16, 24, 16, 48, 2560, {5, 11, 17}},
      {"qwen3vl-8b-mmproj", true, 1152, 4304, 16, 27, 16, 48, 4096, {8, 16, 24}},
      {"gemma3-4b-mmproj", false, 1152, 4304, 16, 27, 14, 64, 2560},
      {"gemma3-12b-mmproj", false, 1152, 4304, 16, 27, 14, 64, 3840},
      {"tiny-qwen3vl-mmproj", true, 64, 96, 4, 3, 16, 6, 64, {0, 1}},
      {"tiny-gemma3-mmproj", false, 64, 96, 4, 3, 14, 16, 64},
  };
}

struct TowerTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // outermost first
  DType type = DType::kF32;
  float centre = 0.0F;
  float deviation = 0.1F;
};

class TowerTensors {
 public:
  TowerTensors(const TowerShape& shape, DType type) : shape_(shape), type_(type) {
    add_patches();
    for (std::int64_t block = 0; block < shape.blocks; ++block)
      add_block(fmt::format("v.blk.{}.", block));
    add_norm("v.post_ln", shape.width);
    if (shape.is_qwen) {
      add_mergers();
    } else {
      // [inputs][outputs], in a type whose rows may have any length.
      tensors_.push_back(
          {"mm.input_projection.weight", {shape.width, shape.text_width}, DType::kF16, 0.0F, spread(shape.width)});
      tensors_.push_back({"mm.soft_emb_norm.weight", {shape.width}, DType::kF32, 1.0F});
    }
  }

  const std::vector<TowerTensor>& all() const { return tensors_; }

 private:
  static float spread(std::int64_t inputs) { return 1.0F / std::sqrt(static_cast<float>(inputs)); }

  void add_patches() {
    const std::vector<std::int64_t> patches = {shape_.width, 3, shape_.patch, shape_.patch};
    const float deviation = spread(3 * shape_.patch * shape_.patch);
    tensors_.push_back({"v.patch_embd.weight", patches, DType::kF16, 0.0F, deviation});
    if (shape_.is_qwen) tensors_.push_back({"v.patch_embd.weight.1", patches, DType::kF16, 0.0F, deviation});
    tensors_.push_back({"v.patch_embd.bias", {shape_.width}});
    tensors_.push_back({"v.position_embd.weight", {shape_.positions * shape_.positions, shape_.width}});
  }

  void add_linear(const std::string& name, std::int64_t rows, std::int64_t cols) {
    tensors_.push_back({name + ".weight", {rows, cols}, fitting_type(type_, cols), 0.0F, spread(cols)});
    tensors_.push_back({name + ".bias", {rows}});
  }

  void add_norm(const std::string& name, std::int64_t width) {
    tensors_.push_back({name + ".weight", {width}, DType::kF32, 1.0F});
    tensors_.push_back({name + ".bias", {width}});
  }

  void add_block(const std::string& prefix) {
    const std::int64_t width = shape_.width;
    add_norm(prefix + "ln1", width);
    if (shape_.is_qwen) {
      add_linear(prefix + "attn_qkv", 3 * width, width);
    } else {
      for (const char* part : {"attn_q", "attn_k", "attn_v"})
        add_linear(prefix + part, width, width);
    }
    add_linear(prefix + "attn_out", width, width);
    add_norm(prefix + "ln2", width);
    add_linear(prefix + "ffn_up", shape_.ffn, width);
    add_linear(prefix + "ffn_down", width, shape_.ffn);
  }

  void add_mergers() {
    const std::int64_t merged = 4 * shape_.width;
    for (const std::int64_t level : shape_.levels) {
      const std::string prefix = fmt::format("v.deepstack.{}.", level);
      add_norm(prefix + "norm", merged);
      add_linear(prefix + "fc1", merged, merged);
      add_linear(prefix + "fc2", shape_.text_width, merged);
    }
    add_linear("mm.0", merged, merged);
    add_linear("mm.2", shape_.text_width, merged);
  }

  const TowerShape& shape_;
  const DType type_;
  std::vector<TowerTensor> tensors_;
};

void set_keys(GgufWriter& out, const TowerShape& shape) {
  const auto count = [&](const char* key, std::int64_t value) {
    out.set(fmt::format("clip.vision.{}", key), static_cast<std::uint32_t>(value));
  };
  const std::vector<float> half(3, 0.5F);
  out.set("general.architecture", "clip");
  out.set("general.type", "mmproj");
  out.set("general.name", shape.name);
  out.set("clip.has_vision_encoder", true);
  out.set("clip.use_gelu", true);
  out.set("clip.projector_type", shape.is_qwen ? "qwen3vl_merger" : "gemma3");
  count("image_size", shape.positions * shape.patch);
  count("patch_size", shape.patch);
  count("embedding_length", shape.width);
  count("feed_forward_length", shape.ffn);
  count("block_count", shape.blocks);
  count("attention.head_count", shape.heads);
  count("projection_dim", shape.text_width);
  if (shape.is_qwen) count("spatial_merge_size", 2);
  out.set("clip.vision.attention.layer_norm_epsilon", 1e-6F);
  out.set("clip.vision.image_mean", std::span<const float>(half));
  out.set("clip.vision.image_std", std::span<const float>(half));
}

}  // namespace

std::vector<std::string> synth_tower_names() {
  std::vector<std::string> names;
  for (const TowerShape& shape : shapes())
    names.emplace_back(shape.name);
  return names;
}

void write_synthetic_tower(std::string_view name, DType type, std::uint64_t seed, const std::filesystem::path& path,
                           const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const std::vector<TowerShape> all = shapes();
  const auto shape = std::ranges::find(all, name, &TowerShape::name);
  if (shape == all.end()) throw StartupError(fmt::format("there is no synthetic tower '{}'", name));
  const TowerTensors tensors(*shape, type);
  GgufWriter out(path);
  set_keys(out, *shape);
  for (const TowerTensor& tensor : tensors.all())
    out.declare(tensor.name, std::vector<std::int64_t>(tensor.shape.rbegin(), tensor.shape.rend()), tensor.type);
  out.begin_data();
  std::mt19937_64 random(seed);
  std::int64_t done = 0;
  for (const TowerTensor& tensor : tensors.all()) {
    const std::int64_t count = num_elements(tensor.shape);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      const auto unit = static_cast<float>(random() >> 40) / static_cast<float>(1 << 24);
      value = tensor.centre + tensor.deviation * (2.0F * unit - 1.0F);
    }
    std::vector<std::byte> bytes(dtype_bytes(tensor.type, count));
    quantize(tensor.type, values, bytes);
    out.append(bytes);
    if (progress) progress(++done, std::ssize(tensors.all()));
  }
  out.finish();
}

}  // namespace quire
