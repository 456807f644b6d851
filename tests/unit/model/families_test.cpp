// A tiny synthetic model of each family, and legal variations of it, against the scalar reference in double precision.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/model/layers/checkpoint.h"
#include "core/model/layers/loaded_model.h"
#include "core/model/tools/synth.h"
#include "tests/support/material.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/exam.h"
#include "tests/unit/model/family_judge.h"
#include "tests/unit/model/model_runner.h"
#include "tests/unit/model/reference/spec_reference.h"

using namespace quire;
using namespace quire::test;

namespace {

std::vector<std::string> tiny_families() {
  std::vector<std::string> names = family_shape_names();
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("tiny-"); });
  return names;
}

// `changes`: keys that replace the family's own.
double deviation(const std::string& name, const std::string& changes, const std::string& isa) {
  SynthSpec spec = find_synth_shape(name).value();
  spec.types = find_synth_types("F32").value();
  spec.family->keys += " " + changes;
  const TemporaryFolder folder;
  const auto path = folder / "model.gguf";
  write_synthetic_gguf(spec, path, {});
  return deviation_of(path, spec, path, isa);
}

constexpr double kLimit = 1e-4;

}  // namespace

namespace {

void check_families(const char* isa) {
  for (const std::string& name : tiny_families()) {
    INFO(name << " on " << isa);
    double worst = 1e9;
    CHECK_NOTHROW(worst = deviation(name, "", isa));
    CHECK(worst < kLimit);
  }
}

}  // namespace

TEST_CASE("Every family agrees with the scalar reference", "[model][families]") {
  check_families(kVectorIsa);
}

TEST_CASE("Every family agrees with the scalar reference on the scalar level", "[model][families][.long]") {
  check_families("scalar");
}

// Sizes that are no multiples of a vector, a block or each other; other numbers of layers, heads and experts.
TEST_CASE("Every family agrees with the scalar reference in other shapes", "[model][families][.long]") {
  struct Change {
    const char* keys;
    bool for_experts;
    const char* not_of;  // families that the change is illegal in
  };
  const Change changes[] = {{"d=72 ff=37", false, "minimax olmo jina lfm nemotron"},
                            {"v=517 ctx=93", false, ""},
                            {"eps=0.00001 leps=0.00001", false, ""},
                            {"base=500.0", false, ""},
                            {"E=5 top=1", true, "deepseek2 bailing"},
                            {"E=12 top=4", true, ""},
                            {"fe=17 fs=9", true, ""}};
  for (const std::string& name : tiny_families()) {
    const FamilyShape shape = find_family_shape(name).value();
    for (const Change& change : changes) {
      if (change.for_experts && shape.keys.find("E=") == std::string::npos) continue;
      std::string names = change.not_of;
      bool is_illegal = false;
      for (std::size_t at = 0; at < names.size();) {
        const std::size_t end = std::min(names.find(' ', at), names.size());
        is_illegal = is_illegal || name.find(names.substr(at, end - at)) != std::string::npos;
        at = end + 1;
      }
      if (is_illegal) continue;
      std::string keys = change.keys;
      // A norm has a single kind.
      if (keys.starts_with("eps"))
        keys = shape.keys.find("leps=") == std::string::npos ? "eps=0.00001" : "leps=0.00001";
      INFO(name << " with " << keys);
      double worst = 1e9;
      CHECK_NOTHROW(worst = deviation(name, keys, kVectorIsa));
      CHECK(worst < kLimit);
    }
  }
}

TEST_CASE("The scalar reference gives the logits that another engine gives", "[model][families][architectures]") {
  QUIRE_REQUIRE_MATERIAL(folder, "architectures/given");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    INFO(name);
    const ExamReference exam = read_exam(entry.path() / "reference.json");
    if (exam.is_embedding) continue;
    const auto file = GgufFile::open(entry.path() / "model.gguf");
    const Checkpoint checkpoint = make_gguf_checkpoint(file, name, false, {.served_context = exam.context});
    const ExamPrompt& prompt = exam.prompts.at(1);
    const SpecReference::Rows logits = SpecReference(checkpoint.spec, *file).logits(prompt.ids);
    double worst = 0.0;
    for (std::size_t row = 0; row < logits.size(); ++row) {
      for (std::size_t i = 0; i < exam.columns.size(); ++i) {
        const double expected = static_cast<double>(prompt.columns.at(row * exam.columns.size() + i));
        worst = std::max(worst, std::fabs(logits[row].at(static_cast<std::size_t>(exam.columns[i])) - expected));
      }
    }
    CHECK(worst < 1e-4);
  }
}
