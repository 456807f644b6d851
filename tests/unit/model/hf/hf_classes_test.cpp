// A checkpoint of each configuration class gives what its GGUF twin's arithmetic gives, in double precision; and a
// configuration with a key that is not understood is refused.
#include "tests/unit/model/hf/hf_classes.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/result.h"
#include "core/model/layers/checkpoint.h"
#include "core/model/layers/loaded_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/family_judge.h"
#include "tests/unit/model/model_runner.h"
#include "tests/unit/model/reference/spec_reference.h"

using namespace quire;
using namespace quire::test;
using nlohmann::json;

namespace {

constexpr double kClassLimit = 1e-4;

struct Made {
  explicit Made(const HfClass& of) : spec(synth_spec(of)), gguf(folder / "model.gguf"), directory(folder / "hf") {
    write_synthetic_gguf(spec, gguf, {});
    write_hf_class(of, hf_config(of), gguf, directory);
  }
  TemporaryFolder folder;
  SynthSpec spec;
  std::filesystem::path gguf;
  std::filesystem::path directory;
};

void rewrite(const HfClass& of, const Made& made, const json& config) {
  write_hf_class(of, config, made.gguf, made.directory);
}

}  // namespace

TEST_CASE("Every class of checkpoint gives the logits of its GGUF twin", "[model][hf][families]") {
  for (const HfClass& of : hf_classes()) {
    INFO(of.model_type << " of " << of.shape);
    const Made made(of);
    double worst = 1e9;
    CHECK_NOTHROW(worst = deviation_of(made.directory, made.spec, made.gguf, kVectorIsa));
    CHECK(worst < kClassLimit);
  }
}

namespace {

// Checks every step-th key.
void check_renamed_keys(int step) {
  // Keys that the tensors' sizes and names repeat, or that have no effect on the arithmetic.
  const std::set<std::string> said_twice{"vocab_size", "model_type", "max_position_embeddings", "torch_dtype"};
  int number = 0;
  for (const HfClass& of : hf_classes()) {
    const Made made(of);
    const json config = hf_config(of);
    for (const auto& [key, value] : config.items()) {
      const bool says_nothing = value.is_null() || value == false || value == 0 || value == 0.0;
      if (says_nothing || said_twice.contains(key) || number++ % step != 0) continue;
      json other = config;
      other.erase(key);
      other[key + "_of_another_kind"] = value;
      rewrite(of, made, other);
      INFO(of.model_type << ": " << key);
      CHECK_THROWS_AS(open_model(made.directory, false), StartupError);
    }
  }
}

}  // namespace

TEST_CASE("A configuration whose key has another name is refused or has the class's default", "[model][hf]") {
  check_renamed_keys(4);
}

TEST_CASE("A configuration any of whose keys has another name is refused or has the class's default",
          "[model][hf][.long]") {
  check_renamed_keys(1);
}

TEST_CASE("The refusal of an unknown key names it and the nearest known one", "[model][hf]") {
  const HfClass& of = hf_classes().front();
  const Made made(of);
  json config = hf_config(of);
  config["atention_multiplier"] = 2.5;
  rewrite(of, made, config);
  CHECK_THROWS_WITH(open_model(made.directory, false),
                    Catch::Contains("the key 'atention_multiplier' is not supported") &&
                        Catch::Contains("the nearest known one is 'attention_multiplier'"));
}

TEST_CASE("A head that is neither stored nor tied is refused", "[model][hf]") {
  for (const HfClass& of : hf_classes()) {
    if (of.model_type != "exaone4") continue;
    const Made made(of);
    json config = hf_config(of);
    config["tie_word_embeddings"] = false;
    config["architectures"] = {"Exaone4ForCausalLM"};
    rewrite(of, made, config);
    CHECK_THROWS_WITH(open_model(made.directory, false), Catch::Contains("there is no tensor 'lm_head.weight'"));
  }
}

TEST_CASE("The name of GELU says which of its forms is computed", "[model][hf]") {
  for (const HfClass& of : hf_classes()) {
    if (of.model_type != "distilbert" && of.model_type != "modernbert") continue;
    const std::string key = of.model_type == "distilbert" ? "activation" : "hidden_activation";
    const Made made(of);
    json config = hf_config(of);
    const auto kind_of = [&](const char* name) {
      config[key] = name;
      rewrite(of, made, config);
      return read_hf_checkpoint(made.directory, false).spec.layers.at(0).feed_forward.activation.kind;
    };
    CHECK(kind_of("gelu") == Nonlinearity::kGeluOfError);
    for (const char* name : {"gelu_pytorch_tanh", "gelu_new", "gelu_fast"})
      CHECK(kind_of(name) == Nonlinearity::kGelu);
    CHECK_THROWS_WITH(kind_of("gelu_10"), Catch::Contains("the activation 'gelu_10' is not supported"));
  }
}
