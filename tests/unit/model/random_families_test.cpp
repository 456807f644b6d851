// Every family in shapes drawn at random against the scalar reference in double precision: odd widths, heads that are
// no multiple of a vector, windows shorter than a block, all experts or one, biases anywhere, other storage.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <random>

#include "core/base/result.h"
#include "core/model/tools/synth.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/family_judge.h"

using namespace quire;
using namespace quire::test;

namespace {

class ShapeDrawer {
 public:
  explicit ShapeDrawer(std::uint32_t seed) : random_(seed) {}

  // Changes of keys and parts that fit together; what the shape fixes by other numbers stays.
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
    if (!lists_layers) keys += " L=" + pick({"1", "2", "3", "5"});
    if (!has("_norm:d") && !has("shortconv") && !has("_norm:48")) keys += " d=" + pick({"40", "52", "72", "91"});
    if (!has(" ff=[") && !has(" ff=0")) keys += " ff=" + pick({"17", "33", "50", "96"});
    keys += " v=" + pick({"512", "517", "545"}) + " ctx=" + pick({"61", "93", "512"});
    if (!has("_mla") && !has("h=0") && !has(" h=[") && !has("_swa") && !has("kda.") && !has("ssm.") &&
        !has("_norm:d") && !has("_norm:48") && !has("kv_lora") && !has("value_length="))
      keys += heads(has("rot="), has(" kv=["));
    if (has("win=")) keys += " win=" + pick({"1", "3", "7", "16", "40"});
    if (has("E=") && !has("group_count=4")) keys += pick({" E=1 top=1", " E=3 top=3", " E=5 top=2", " E=9 top=4"});
    if (has("fe=")) keys += " fe=" + pick({"7", "17", "32"});
    shape.keys += keys;
    if (pick({"y", "n"}) == "y") shape.biases += pick({" attn_q attn_v", " attn_output ffn_down", " attn_k ffn_up"});
    toggle_head(shape);
    return spec;
  }

 private:
  std::string pick(const std::vector<std::string>& from) { return from[random_() % from.size()]; }

  std::string heads(bool has_rot, bool lists_kv) {
    std::string out = " hd=" + pick({"10", "12", "18", "20", "24", "36"});
    if (has_rot) out += " rot=" + pick({"2", "6", "10"});
    if (!lists_kv) out += pick({" h=3 kv=1", " h=5 kv=5", " h=6 kv=2", " h=1 kv=1", " h=7 kv=7"});
    return out;
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
  // More than the usual ones, by hand.
  const char* text = std::getenv("QUIRE_TEST_SHAPES");
  return text == nullptr ? 3 : static_cast<std::uint32_t>(std::max(1, std::atoi(text)));
}

}  // namespace

TEST_CASE("Every family agrees with the scalar reference in shapes drawn at random", "[model][families]") {
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
        // A shape that the family cannot have.
        ++num_refused;
        if (std::getenv("QUIRE_TEST_SHAPES") != nullptr) WARN(name << ": " << error.what());
        continue;
      }
      const TemporaryFolder folder;
      const auto path = folder / "model.gguf";
      double worst = 1e9;
      CHECK_NOTHROW(write_synthetic_gguf(spec, path, {}));
      CHECK_NOTHROW(worst = deviation_of(path, spec, path, round % 2 == 0 ? "avx2" : "scalar"));
      CHECK(worst < kShapeLimit);
    }
  }
  CHECK(num_refused * 10 < num_drawn);
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
      const auto number = metadata->get_float(std::string(full));
      if (metadata->get_bool(std::string(full)) == false || number == 0.0) continue;
      FamilyShape other = shape;
      other.keys += " " + key + "= " + key + "_of_another_kind=2.5";
      INFO(name << ": " << key);
      CHECK_THROWS_AS(read_family_shape(other), StartupError);
    }
  }
}
