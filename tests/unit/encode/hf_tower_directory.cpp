#include "tests/unit/encode/hf_tower_directory.h"

#include <fmt/core.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "core/model/formats/gguf/gguf.h"

namespace quire::test {

namespace {

using Json = nlohmann::json;

struct Values {
  std::vector<std::int64_t> shape;  // outermost first
  std::vector<float> values;
};

// The element that stands at each place of a new shape.
Values reordered(const Values& from, std::vector<std::int64_t> shape,
                 const std::function<std::int64_t(std::int64_t)>& source) {
  Values out{std::move(shape), {}};
  for (std::size_t i = 0; i < from.values.size(); ++i)
    out.values.push_back(from.values[static_cast<std::size_t>(source(static_cast<std::int64_t>(i)))]);
  return out;
}

class HfTowerWriter {
 public:
  HfTowerWriter(const std::filesystem::path& family, std::string name)
      : file_(GgufFile::open(family / "mmproj.gguf")), family_(std::move(name)) {
    for (const GgufTensor& tensor : file_->tensors()) {
      Values values{{tensor.shape.rbegin(), tensor.shape.rend()}, std::vector<float>(tensor.data.size() / 4)};
      std::memcpy(values.values.data(), tensor.data.data(), tensor.data.size());
      gguf_[std::string(tensor.name)] = std::move(values);
    }
  }

  void write(const std::filesystem::path& directory, const std::string& extra) {
    fill();
    if (!extra.empty()) out_[extra] = {{1}, {0.0F}};
    Json config = {{"model_type", model_type_}, {"vision_config", vision_}, {"text_config", Json::object()}};
    config.update(top_);
    std::ofstream(directory / "config.json") << config.dump();
    std::ofstream(directory / "preprocessor_config.json") << processor_.dump();
    Json header;
    std::uint64_t at = 0;
    for (const auto& [name, values] : out_) {
      const std::uint64_t end = at + values.values.size() * sizeof(float);
      header[name] = {{"dtype", "F32"}, {"shape", values.shape}, {"data_offsets", {at, end}}};
      at = end;
    }
    const std::string text = header.dump();
    const std::uint64_t size = text.size();
    std::ofstream file(directory / "model.safetensors", std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof size);
    file << text;
    for (const auto& [name, values] : out_)
      file.write(reinterpret_cast<const char*>(values.values.data()),
                 static_cast<std::streamsize>(values.values.size() * sizeof(float)));
  }

 private:
  std::int64_t key(const std::string& name) const { return file_->get_int("clip.vision." + name).value(); }
  double eps() const { return file_->get_float("clip.vision.attention.layer_norm_epsilon").value(); }

  void fill() {
    if (family_ == "gemma3") return fill_gemma3();
    if (family_ == "gemma4") return fill_gemma4();
    if (family_ == "pixtral" || family_ == "mistral3") return fill_pixtral();
    fill_qwen();
  }

  Values take(const std::string& name) {
    Values out = gguf_.at(name);
    gguf_.erase(name);
    return out;
  }

  // Moves tensors by their stems, "#" being the number of a block; none may be left.
  void move_all(const std::vector<std::pair<std::string, std::string>>& stems) {
    for (const auto& [gguf, hf] : stems) {
      for (std::int64_t block = 0; block < key("block_count"); ++block) {
        const auto numbered = [&](std::string text) {
          if (const std::size_t mark = text.find('#'); mark != std::string::npos)
            text.replace(mark, 1, std::to_string(block));
          return text;
        };
        for (const char* suffix : {"", ".weight", ".bias"}) {
          const std::string name = numbered(gguf) + suffix;
          if (gguf_.contains(name)) out_[numbered(hf) + suffix] = take(name);
        }
      }
    }
    if (!gguf_.empty()) throw std::runtime_error("no name for " + gguf_.begin()->first);
  }

  void join_frames() {
    const Values first = take("v.patch_embd.weight");
    const Values second = take("v.patch_embd.weight.1");
    const std::int64_t area = first.shape[2] * first.shape[3];
    Values both{{first.shape[0], 3, 2, first.shape[2], first.shape[3]}, {}};
    for (std::int64_t row = 0; row < first.shape[0] * 3; ++row) {
      for (const Values* frame : {&first, &second})
        both.values.insert(both.values.end(), frame->values.begin() + row * area,
                           frame->values.begin() + (row + 1) * area);
    }
    out_["visual.patch_embed.proj.weight"] = both;
  }

  void join_qkv() {
    for (std::int64_t block = 0; block < key("block_count"); ++block) {
      for (const char* suffix : {".weight", ".bias"}) {
        const std::string prefix = fmt::format("v.blk.{}.attn_", block);
        if (!gguf_.contains(prefix + "q" + suffix)) continue;
        Values all = take(prefix + "q" + suffix);
        for (const char* part : {"k", "v"}) {
          const Values more = take(prefix + part + suffix);
          all.values.insert(all.values.end(), more.values.begin(), more.values.end());
        }
        all.shape[0] *= 3;
        out_[fmt::format("visual.blocks.{}.attn.qkv{}", block, suffix)] = all;
      }
    }
  }

  void fill_qwen() {
    const bool is_third = family_ == "qwen3vl" || family_ == "qwen35";
    const std::map<std::string, std::string> types = {
        {"qwen2vl", "qwen2_vl"}, {"qwen25vl", "qwen2_5_vl"}, {"qwen3vl", "qwen3_vl"}, {"qwen35", "qwen3_5"}};
    model_type_ = types.at(family_);
    vision_ = {{"depth", key("block_count")},
               {"hidden_size", key("embedding_length")},
               {"num_heads", key("attention.head_count")},
               {"patch_size", key("patch_size")},
               {"spatial_merge_size", 2},
               {"temporal_patch_size", 2},
               {"in_channels", 3}};
    processor_ = {{"min_pixels", 4000}, {"max_pixels", 900000}};
    std::vector<std::pair<std::string, std::string>> stems = {
        {"v.patch_embd", "visual.patch_embed.proj"},      {"v.position_embd", "visual.pos_embed"},
        {"v.blk.#.ln1", "visual.blocks.#.norm1"},         {"v.blk.#.ln2", "visual.blocks.#.norm2"},
        {"v.blk.#.attn_qkv", "visual.blocks.#.attn.qkv"}, {"v.blk.#.attn_out", "visual.blocks.#.attn.proj"}};
    join_frames();
    if (is_third) {
      vision_["intermediate_size"] = key("feed_forward_length");
      vision_["num_position_embeddings"] = gguf_.at("v.position_embd.weight").shape[0];
      vision_["deepstack_visual_indexes"] = Json::array();
      processor_ = {{"size", {{"shortest_edge", 4000}, {"longest_edge", 900000}}}};
      for (std::int64_t block = 0; block < key("block_count"); ++block) {
        if (!gguf_.contains(fmt::format("v.deepstack.{}.fc1.weight", block))) continue;
        const std::size_t level = vision_["deepstack_visual_indexes"].size();
        vision_["deepstack_visual_indexes"].push_back(block);
        for (const auto& [from, to] : {std::pair{"norm", "norm"}, {"fc1", "linear_fc1"}, {"fc2", "linear_fc2"}})
          stems.emplace_back(fmt::format("v.deepstack.{}.{}", block, from),
                             fmt::format("visual.deepstack_merger_list.{}.{}", level, to));
      }
      stems.insert(stems.end(), {{"v.blk.#.ffn_up", "visual.blocks.#.mlp.linear_fc1"},
                                 {"v.blk.#.ffn_down", "visual.blocks.#.mlp.linear_fc2"},
                                 {"v.post_ln", "visual.merger.norm"},
                                 {"mm.0", "visual.merger.linear_fc1"},
                                 {"mm.2", "visual.merger.linear_fc2"}});
      return move_all(stems);
    }
    join_qkv();
    const bool is_gated = family_ == "qwen25vl";
    stems.insert(stems.end(),
                 {{"v.blk.#.ffn_gate", "visual.blocks.#.mlp.gate_proj"},
                  {"v.blk.#.ffn_up", is_gated ? "visual.blocks.#.mlp.up_proj" : "visual.blocks.#.mlp.fc1"},
                  {"v.blk.#.ffn_down", is_gated ? "visual.blocks.#.mlp.down_proj" : "visual.blocks.#.mlp.fc2"},
                  {"v.post_ln", "visual.merger.ln_q"},
                  {"mm.0", "visual.merger.mlp.0"},
                  {"mm.2", "visual.merger.mlp.2"}});
    if (is_gated) {
      vision_["intermediate_size"] = key("feed_forward_length");
      vision_["fullatt_block_indexes"] = {1, 3};
      vision_["window_size"] = 112;
    } else {
      vision_["embed_dim"] = key("embedding_length");
      vision_["hidden_size"] = 64;
      vision_["mlp_ratio"] =
          static_cast<double>(key("feed_forward_length")) / static_cast<double>(key("embedding_length"));
    }
    move_all(stems);
  }

  void fill_siglip_sizes() {
    vision_ = {{"hidden_size", key("embedding_length")},
               {"intermediate_size", key("feed_forward_length")},
               {"num_attention_heads", key("attention.head_count")},
               {"num_hidden_layers", key("block_count")},
               {"patch_size", key("patch_size")},
               {"image_size", key("image_size")}};
  }

  void fill_gemma3() {
    fill_siglip_sizes();
    model_type_ = "gemma3";
    vision_["layer_norm_eps"] = eps();
    vision_["model_type"] = "siglip_vision_model";
    const std::int64_t side = key("image_size") / key("patch_size") / 4;
    top_["mm_tokens_per_image"] = side * side;
    for (float& value : gguf_.at("mm.soft_emb_norm.weight").values)
      value -= 1.0F;
    const std::string prefix = "vision_tower.vision_model.";
    out_["multi_modal_projector.mm_input_projection_weight"] = take("mm.input_projection.weight");
    move_all({{"v.patch_embd", prefix + "embeddings.patch_embedding"},
              {"v.position_embd", prefix + "embeddings.position_embedding"},
              {"v.blk.#.ln1", prefix + "encoder.layers.#.layer_norm1"},
              {"v.blk.#.ln2", prefix + "encoder.layers.#.layer_norm2"},
              {"v.blk.#.attn_q", prefix + "encoder.layers.#.self_attn.q_proj"},
              {"v.blk.#.attn_k", prefix + "encoder.layers.#.self_attn.k_proj"},
              {"v.blk.#.attn_v", prefix + "encoder.layers.#.self_attn.v_proj"},
              {"v.blk.#.attn_out", prefix + "encoder.layers.#.self_attn.out_proj"},
              {"v.blk.#.ffn_up", prefix + "encoder.layers.#.mlp.fc1"},
              {"v.blk.#.ffn_down", prefix + "encoder.layers.#.mlp.fc2"},
              {"v.post_ln", prefix + "post_layernorm"},
              {"mm.soft_emb_norm", "multi_modal_projector.mm_soft_emb_norm"}});
  }

  void fill_gemma4() {
    fill_siglip_sizes();
    model_type_ = "gemma4";
    vision_["rms_norm_eps"] = eps();
    vision_["pooling_kernel_size"] = 3;
    vision_["default_output_length"] = 280;
    vision_["hidden_activation"] = "gelu_pytorch_tanh";
    const std::string prefix = "model.vision_tower.";
    const std::int64_t area = key("patch_size") * key("patch_size");
    const Values patches = take("v.patch_embd.weight");
    out_[prefix + "patch_embedder.input_proj.weight"] =
        reordered(patches, {patches.shape[0], 3 * area}, [area](std::int64_t i) {
          const std::int64_t inside = i % (3 * area);
          return i - inside + inside % 3 * area + inside / 3;
        });
    out_[prefix + "patch_embedder.position_embedding_table"] = take("v.position_embd.weight");
    std::vector<std::pair<std::string, std::string>> stems = {
        {"v.blk.#.ln1", prefix + "encoder.layers.#.input_layernorm"},
        {"v.blk.#.ln2", prefix + "encoder.layers.#.pre_feedforward_layernorm"},
        {"v.blk.#.attn_q_norm", prefix + "encoder.layers.#.self_attn.q_norm"},
        {"v.blk.#.attn_k_norm", prefix + "encoder.layers.#.self_attn.k_norm"},
        {"v.blk.#.attn_post_norm", prefix + "encoder.layers.#.post_attention_layernorm"},
        {"v.blk.#.ffn_post_norm", prefix + "encoder.layers.#.post_feedforward_layernorm"},
        {"v.std_bias", prefix + "std_bias"},
        {"v.std_scale", prefix + "std_scale"},
        {"mm.input_projection", "model.embed_vision.embedding_projection"}};
    for (const auto& [from, to] : {std::pair{"attn_q", "self_attn.q_proj"},
                                   {"attn_k", "self_attn.k_proj"},
                                   {"attn_v", "self_attn.v_proj"},
                                   {"attn_out", "self_attn.o_proj"},
                                   {"ffn_gate", "mlp.gate_proj"},
                                   {"ffn_up", "mlp.up_proj"},
                                   {"ffn_down", "mlp.down_proj"}}) {
      const std::string gguf = fmt::format("v.blk.#.{}", from);
      const std::string hf = fmt::format("{}encoder.layers.#.{}", prefix, to);
      stems.emplace_back(gguf, hf + ".linear");
      for (const char* bound : {".input_min", ".input_max", ".output_min", ".output_max"})
        stems.emplace_back(gguf + bound, hf + bound);
    }
    move_all(stems);
    for (auto& [name, values] : out_) {
      if (name.ends_with("_min") || name.ends_with("_max")) values.shape.clear();
    }
  }

  void fill_pixtral() {
    fill_siglip_sizes();
    const bool merges = family_ == "mistral3";
    model_type_ = merges ? "mistral3" : "llava";
    vision_["model_type"] = "pixtral";
    vision_["hidden_act"] = "silu";
    vision_["rope_theta"] = 10000.0;
    if (merges) top_["spatial_merge_size"] = 2;
    const std::int64_t dim = key("embedding_length") / key("attention.head_count");
    for (std::int64_t block = 0; block < key("block_count"); ++block) {
      for (const char* part : {"q", "k"}) {
        const Values rows = take(fmt::format("v.blk.{}.attn_{}.weight", block, part));
        const std::int64_t cols = rows.shape[1];
        out_[fmt::format("vision_tower.transformer.layers.{}.attention.{}_proj.weight", block, part)] =
            reordered(rows, rows.shape, [=](std::int64_t i) {
              const std::int64_t row = i / cols;
              const std::int64_t inside = row % dim;
              return (row - inside + inside % (dim / 2) * 2 + inside / (dim / 2)) * cols + i % cols;
            });
      }
    }
    const Values last = take("v.token_embd.img_break");
    const auto width = static_cast<std::int64_t>(last.values.size());
    Values table{{20, width}, std::vector<float>(static_cast<std::size_t>(20 * width), 0.5F)};
    std::copy(last.values.begin(), last.values.end(), table.values.begin() + 12 * width);
    out_["language_model.model.embed_tokens.weight"] = table;
    const std::string layer = "vision_tower.transformer.layers.#.";
    move_all({{"v.patch_embd", "vision_tower.patch_conv"},
              {"v.pre_ln", "vision_tower.ln_pre"},
              {"v.blk.#.ln1", layer + "attention_norm"},
              {"v.blk.#.ln2", layer + "ffn_norm"},
              {"v.blk.#.attn_v", layer + "attention.v_proj"},
              {"v.blk.#.attn_out", layer + "attention.o_proj"},
              {"v.blk.#.ffn_gate", layer + "feed_forward.gate_proj"},
              {"v.blk.#.ffn_up", layer + "feed_forward.up_proj"},
              {"v.blk.#.ffn_down", layer + "feed_forward.down_proj"},
              {"mm.input_norm", "multi_modal_projector.norm"},
              {"mm.patch_merger", "multi_modal_projector.patch_merger.merging_layer"},
              {"mm.1", "multi_modal_projector.linear_1"},
              {"mm.2", "multi_modal_projector.linear_2"}});
  }

  std::shared_ptr<const GgufFile> file_;
  std::string family_;
  std::map<std::string, Values> gguf_;
  std::map<std::string, Values> out_;
  std::string model_type_;
  Json vision_;
  Json processor_ = Json::object();
  Json top_ = Json::object();
};

}  // namespace

void write_hf_tower(const std::filesystem::path& family, const std::filesystem::path& directory,
                    const std::string& extra) {
  HfTowerWriter(family, family.filename().string()).write(directory, extra);
}

}  // namespace quire::test
