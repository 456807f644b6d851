// Every family in shapes drawn at random against the scalar reference in double precision: odd widths, heads that are
// no multiple of a vector, windows shorter than a block, all experts or one, biases anywhere, other storage.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "core/base/result.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/family_judge.h"
#include "tests/unit/model/model_runner.h"

using namespace quire;
using namespace quire::test;

namespace {

class ShapeDrawer {
 public:
  explicit ShapeDrawer(std::uint32_t seed) : random_(seed) {}

  // Draws changes of keys and parts that fit together; keys that other numbers of the shape determine stay.
  SynthSpec draw(const std::string& name) {
    SynthSpec spec = find_synth_shape(name).value();
    FamilyShape& shape = *spec.family;
    const auto has = [&](const char* text) {
      return (" " + shape.keys).find(text) != std::string::npos || shape.parts.find(text) != std::string::npos;
    };
    spec.types = find_synth_types(pick({"F32", "F32", "F16", "BF16"})).value();
    spec.seed = random_();
    std::string keys;
    const bool lists_layers = has("=[") || has("@3") || has("@2") || has("@0");
    std::int64_t num_layers = 0;
    if (!lists_layers && !has("shared_kv_layers")) {
      num_layers = std::stoll(pick({"1", "2", "3", "5"}));
      keys += " L=" + std::to_string(num_layers);
    }
    if (!has("_norm:d") && !has("shortconv") && !has("_norm:48")) keys += " d=" + pick({"40", "52", "72", "91"});
    if (!has(" ff=[") && !has(" ff=0")) keys += " ff=" + pick({"17", "33", "50", "96"});
    keys += " v=" + pick({"512", "517", "545"}) + " ctx=" + pick({"61", "93", "512"});
    if (!has("_mla") && !has("h=0") && !has(" h=[") && !has("_swa") && !has("kda.") && !has("ssm.") &&
        !has("_norm:d") && !has("_norm:48") && !has("kv_lora") && !has("value_length="))
      keys += heads(has("rot="), has(" kv=["));
    if (has("win=")) keys += " win=" + pick({"1", "3", "7", "16", "40"});
    if (has("E=") && !has("group_count=4")) keys += pick({" E=1 top=1", " E=3 top=3", " E=5 top=2", " E=9 top=4"});
    if (has("fe=")) keys += " fe=" + pick({"7", "17", "32"});
    if (has("E=")) keys += routing();
    if (!has("leps=") && !has("=[")) keys += pick({"", " eps=0.000001", " eps=0.02"});
    if (num_layers > 0 && !has("h=0") && pick({"y", "n", "n"}) == "y") keys += as_lists(shape.keys + keys, num_layers);
    shape.keys += keys;
    const bool rotates = !has("_mla") && !has("kv_lora") && !has("h=0") && !has("^position_embd");
    if (rotates && !has("rope.scaling") && !has("_swa")) shape.keys += rope_scaling(shape);
    if (pick({"y", "n"}) == "y") shape.biases += pick({" attn_q attn_v", " attn_output ffn_down", " attn_k ffn_up"});
    toggle_head(shape);
    return spec;
  }

 private:
  std::string pick(const std::vector<std::string>& from) { return from[random_() % from.size()]; }

  std::string heads(bool has_rot, bool lists_kv) {
    std::string out = " hd=" + pick({"10", "12", "13", "18", "20", "24", "27", "36"});
    // An odd head rotates a part of itself.
    const bool is_odd = out.ends_with("3") || out.ends_with("7");
    if (has_rot || is_odd || pick({"y", "n", "n"}) == "y") out += " rot=" + pick({"2", "6", "10"});
    if (!lists_kv) out += pick({" h=3 kv=1", " h=5 kv=5", " h=6 kv=2", " h=1 kv=1", " h=7 kv=7"});
    return out;
  }

  // Numbers that files hold once or for every layer.
  static std::string as_lists(const std::string& keys, std::int64_t num_layers) {
    std::string out;
    for (const std::string key : {" ff=", " h=", " kv="}) {
      const std::size_t at = keys.rfind(key);
      if (at == std::string::npos) continue;
      const std::size_t begin = at + key.size();
      const std::string value = keys.substr(begin, keys.find(' ', begin) - begin);
      out += key + "[" + value;
      for (std::int64_t i = 1; i < num_layers; ++i)
        out += "," + value;
      out += "]";
    }
    return out;
  }

  // Keys that files of any expert model may state.
  std::string routing() {
    return pick({"", " expert_gating_func=1", " expert_gating_func=2", " expert_gating_func=3"}) +
           pick({"", " expert_weights_norm=true", " expert_weights_norm=false"}) +
           pick({"", " expert_weights_scale=1.7", " expert_weights_scale=1.0"}) + pick({"", " expert_shared_count=2"});
  }

  // Each kind of extension; factors for every pair of dimensions come as tensors.
  std::string rope_scaling(FamilyShape& shape) {
    const std::string kind = pick({"", "linear", "yarn", "longrope", "shortrope", "factors"});
    const std::string pairs = std::to_string(rotated_pairs(shape));
    const auto both = [&] {
      if (pairs != "0") shape.parts += " ^rope_factors_long:" + pairs + " ^rope_factors_short:" + pairs;
      return " rope.scaling.attn_factor=1.19";
    };
    if (kind == "linear") return " rope.scaling.type=linear rope.scaling.factor=" + pick({"2.5", "8.0"});
    if (kind == "yarn")
      return " rope.scaling.type=yarn rope.scaling.factor=4.0 rope.scaling.original_context_length=" +
             pick({"16", "32"});
    if (kind == "longrope") return both() + std::string(" rope.scaling.original_context_length=32");
    if (kind == "shortrope") return both() + std::string(" rope.scaling.original_context_length=4096");
    if (kind == "factors" && pairs != "0") shape.parts += " ^rope_freqs:" + pairs;
    return "";
  }

  // Number of rotated pairs for the keys' last values; 0 if the shape is impossible.
  static std::int64_t rotated_pairs(const FamilyShape& shape) {
    try {
      return read_family_shape(shape).spec.config.rope.rotary_dim / 2;
    } catch (const StartupError&) {
      return 0;
    }
  }

  void toggle_head(FamilyShape& shape) {
    const std::size_t at = shape.parts.find("^output");
    if (pick({"y", "n"}) == "n" || shape.keys.find("pooling_type") != std::string::npos) return;
    if (at == std::string::npos) {
      shape.parts += " ^output";
    } else {
      shape.parts.erase(at, std::string("^output").size());
    }
  }

  std::mt19937 random_;
};

std::uint32_t num_rounds() {
  // QUIRE_TEST_SHAPES asks for more rounds by hand.
  const char* text = std::getenv("QUIRE_TEST_SHAPES");
  return text == nullptr ? 3 : static_cast<std::uint32_t>(std::max(1, std::atoi(text)));
}

}  // namespace

TEST_CASE("Every family agrees with the scalar reference in shapes drawn at random", "[model][families][.long]") {
  constexpr double kShapeLimit = 1e-4;
  int num_drawn = 0;
  int num_refused = 0;
  std::uint32_t seed = 1;
  for (const std::string& name : family_shape_names()) {
    if (!name.starts_with("tiny-")) continue;
    for (std::uint32_t round = 0; round < num_rounds(); ++round) {
      const SynthSpec spec = ShapeDrawer(seed++).draw(name);
      INFO(name << ": " << spec.family->keys << " | " << spec.family->parts << " | " << spec.family->biases << " | "
                << spec.types.name);
      ++num_drawn;
      try {
        read_family_shape(*spec.family);
      } catch (const StartupError& error) {
        // The family cannot have this shape.
        ++num_refused;
        if (std::getenv("QUIRE_TEST_SHAPES") != nullptr) WARN(name << ": " << error.what());
        continue;
      }
      const TemporaryFolder folder;
      const auto path = folder / "model.gguf";
      double worst = 1e9;
      CHECK_NOTHROW(write_synthetic_gguf(spec, path, {}));
      CHECK_NOTHROW(worst = deviation_of(path, spec, path, round % 2 == 0 ? kVectorIsa : "scalar"));
      CHECK(worst < kShapeLimit);
    }
  }
  CHECK(num_refused * 10 < num_drawn);
}

// Integer products round activations to eight bits: attention scores of random models without scaling move by some
// tenths, and near ties between experts may change (so: families without). A wrong scale or order differs by more.
TEST_CASE("Every family without experts agrees in Q8_0 within the rounding of activations", "[model][families]") {
  constexpr double kRounding = 0.35;
  for (const std::string& name : family_shape_names()) {
    if (!name.starts_with("tiny-")) continue;
    SynthSpec spec = find_synth_shape(name).value();
    if (!spec.family || spec.family->keys.find("E=") != std::string::npos) continue;
    spec.types = find_synth_types("Q8_0").value();
    INFO(name);
    const TemporaryFolder folder;
    const auto path = folder / "model.gguf";
    double worst = 1e9;
    CHECK_NOTHROW(write_synthetic_gguf(spec, path, {}));
    CHECK_NOTHROW(worst = deviation_of(path, spec, path, kVectorIsa));
    CHECK(worst < kRounding);
  }
}

TEST_CASE("A metadata key of another name is refused in every family", "[model][families]") {
  for (const std::string& name : family_shape_names()) {
    if (!name.starts_with("tiny-")) continue;
    const FamilyShape shape = find_family_shape(name).value();
    const auto metadata = read_family_shape(shape).metadata;
    const std::string prefix = shape.architecture + ".";
    for (const auto& [full, value] : metadata->metadata()) {
      if (!full.starts_with(prefix)) continue;
      const std::string key(full.substr(prefix.size()));
      if (flag_of(value) == false || number_of(value) == 0.0) continue;
      FamilyShape other = shape;
      other.keys += " " + key + "= " + key + "_of_another_kind=2.5";
      INFO(name << ": " << key);
      CHECK_THROWS_AS(read_family_shape(other), StartupError);
    }
  }
}
