#include "core/model/encode/towers/hf_tower.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace quire {

namespace {

// A stem of the files and of an mmproj file; '#' is the number of a block.
struct StemPair {
  std::string_view hf;
  std::string_view gguf;
};

constexpr StemPair kQwenStems[] = {
    {"patch_embed.proj", "v.patch_embd"},
    {"pos_embed", "v.position_embd"},
    {"blocks.#.norm1", "v.blk.#.ln1"},
    {"blocks.#.norm2", "v.blk.#.ln2"},
    {"blocks.#.attn.qkv", "v.blk.#.attn_qkv"},
    {"blocks.#.attn.proj", "v.blk.#.attn_out"},
    {"blocks.#.mlp.fc1", "v.blk.#.ffn_up"},
    {"blocks.#.mlp.fc2", "v.blk.#.ffn_down"},
    {"blocks.#.mlp.linear_fc1", "v.blk.#.ffn_up"},
    {"blocks.#.mlp.linear_fc2", "v.blk.#.ffn_down"},
    {"blocks.#.mlp.gate_proj", "v.blk.#.ffn_gate"},
    {"blocks.#.mlp.up_proj", "v.blk.#.ffn_up"},
    {"blocks.#.mlp.down_proj", "v.blk.#.ffn_down"},
    {"merger.ln_q", "v.post_ln"},
    {"merger.norm", "v.post_ln"},
    {"merger.mlp.0", "mm.0"},
    {"merger.mlp.2", "mm.2"},
    {"merger.linear_fc1", "mm.0"},
    {"merger.linear_fc2", "mm.2"},
    {"deepstack_merger_list.#.norm", "v.deepstack.#.norm"},
    {"deepstack_merger_list.#.linear_fc1", "v.deepstack.#.fc1"},
    {"deepstack_merger_list.#.linear_fc2", "v.deepstack.#.fc2"},
};

constexpr StemPair kSiglipStems[] = {
    {"embeddings.patch_embedding", "v.patch_embd"},
    {"embeddings.position_embedding", "v.position_embd"},
    {"encoder.layers.#.layer_norm1", "v.blk.#.ln1"},
    {"encoder.layers.#.layer_norm2", "v.blk.#.ln2"},
    {"encoder.layers.#.self_attn.q_proj", "v.blk.#.attn_q"},
    {"encoder.layers.#.self_attn.k_proj", "v.blk.#.attn_k"},
    {"encoder.layers.#.self_attn.v_proj", "v.blk.#.attn_v"},
    {"encoder.layers.#.self_attn.out_proj", "v.blk.#.attn_out"},
    {"encoder.layers.#.mlp.fc1", "v.blk.#.ffn_up"},
    {"encoder.layers.#.mlp.fc2", "v.blk.#.ffn_down"},
    {"post_layernorm", "v.post_ln"},
    {"mm_soft_emb_norm", "mm.soft_emb_norm"},
    {"mm_input_projection_weight", "mm.input_projection.weight"},
};

constexpr StemPair kGemma4Stems[] = {
    {"patch_embedder.input_proj", "v.patch_embd"},
    {"patch_embedder.position_embedding_table", "v.position_embd.weight"},
    {"encoder.layers.#.input_layernorm", "v.blk.#.ln1"},
    {"encoder.layers.#.pre_feedforward_layernorm", "v.blk.#.ln2"},
    {"encoder.layers.#.self_attn.q_proj", "v.blk.#.attn_q"},
    {"encoder.layers.#.self_attn.k_proj", "v.blk.#.attn_k"},
    {"encoder.layers.#.self_attn.v_proj", "v.blk.#.attn_v"},
    {"encoder.layers.#.self_attn.o_proj", "v.blk.#.attn_out"},
    {"encoder.layers.#.self_attn.q_norm", "v.blk.#.attn_q_norm"},
    {"encoder.layers.#.self_attn.k_norm", "v.blk.#.attn_k_norm"},
    {"encoder.layers.#.post_attention_layernorm", "v.blk.#.attn_post_norm"},
    {"encoder.layers.#.post_feedforward_layernorm", "v.blk.#.ffn_post_norm"},
    {"encoder.layers.#.mlp.gate_proj", "v.blk.#.ffn_gate"},
    {"encoder.layers.#.mlp.up_proj", "v.blk.#.ffn_up"},
    {"encoder.layers.#.mlp.down_proj", "v.blk.#.ffn_down"},
    {"std_bias", "v.std_bias"},
    {"std_scale", "v.std_scale"},
    {"embedding_projection", "mm.input_projection"},
};

constexpr StemPair kPixtralStems[] = {
    {"patch_conv", "v.patch_embd"},
    {"ln_pre", "v.pre_ln"},
    {"transformer.layers.#.attention_norm", "v.blk.#.ln1"},
    {"transformer.layers.#.ffn_norm", "v.blk.#.ln2"},
    {"transformer.layers.#.attention.q_proj", "v.blk.#.attn_q"},
    {"transformer.layers.#.attention.k_proj", "v.blk.#.attn_k"},
    {"transformer.layers.#.attention.v_proj", "v.blk.#.attn_v"},
    {"transformer.layers.#.attention.o_proj", "v.blk.#.attn_out"},
    {"transformer.layers.#.feed_forward.gate_proj", "v.blk.#.ffn_gate"},
    {"transformer.layers.#.feed_forward.up_proj", "v.blk.#.ffn_up"},
    {"transformer.layers.#.feed_forward.down_proj", "v.blk.#.ffn_down"},
    {"norm", "mm.input_norm"},
    {"patch_merger.merging_layer", "mm.patch_merger"},
    {"linear_1", "mm.1"},
    {"linear_2", "mm.2"},
};

// "blocks.3.norm1.bias" by {"blocks.#.norm1", "v.blk.#.ln1"} is "v.blk.3.ln1.bias"; empty: another stem.
std::string renamed(std::string_view name, const StemPair& pair) {
  std::string_view number;
  const std::size_t mark = pair.hf.find('#');
  std::string_view rest = name;
  if (!rest.starts_with(pair.hf.substr(0, mark))) return {};
  if (mark == std::string_view::npos) {
    rest.remove_prefix(pair.hf.size());
  } else {
    rest.remove_prefix(mark);
    number = rest.substr(0, rest.find_first_not_of("0123456789"));
    rest.remove_prefix(number.size());
    if (number.empty() || !rest.starts_with(pair.hf.substr(mark + 1))) return {};
    rest.remove_prefix(pair.hf.size() - mark - 1);
  }
  if (!rest.empty() && rest.front() != '.') return {};
  std::string out(pair.gguf);
  if (const std::size_t at = out.find('#'); at != std::string::npos) out.replace(at, 1, number);
  return out + std::string(rest);
}

// Prefix of the names of a tower's and a projector's tensors; empty: the tensor is the text model's.
std::string_view prefix_of(std::string_view name) {
  constexpr std::array<std::string_view, 10> kPrefixes = {
      "model.visual.",       "visual.",       "model.vision_tower.vision_model.", "vision_tower.vision_model.",
      "model.vision_tower.", "vision_tower.", "model.multi_modal_projector.",     "multi_modal_projector.",
      "model.embed_vision.", "embed_vision."};
  const auto* const found =
      std::ranges::find_if(kPrefixes, [&](std::string_view prefix) { return name.starts_with(prefix); });
  return found == kPrefixes.end() ? std::string_view() : *found;
}

std::span<const StemPair> stems_of(HfTowerClass kind) {
  switch (kind) {
    case HfTowerClass::kQwen: return kQwenStems;
    case HfTowerClass::kSiglip: return kSiglipStems;
    case HfTowerClass::kGemma4: return kGemma4Stems;
    case HfTowerClass::kPixtral: return kPixtralStems;
  }
  return {};
}

}  // namespace

std::string mmproj_name(HfTowerClass kind, const std::string& name) {
  constexpr std::string_view kInner = ".linear.";  // in names of matrices with clamps beside them
  const std::string_view prefix = prefix_of(name);
  if (prefix.empty()) return {};
  std::string own = name.substr(prefix.size());
  if (own.starts_with("head.") || own.ends_with("position_ids")) return {};  // SigLIP's pooling, a counter
  if (const std::size_t at = own.find(kInner); at != std::string::npos) own.erase(at, kInner.size() - 1);
  for (const StemPair& pair : stems_of(kind)) {
    if (std::string found = renamed(own, pair); !found.empty()) return found;
  }
  return name;
}

}  // namespace quire
