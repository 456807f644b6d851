#include "server/api/generation/generation_fields.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "server/api/fields/generation.h"

namespace quire {

namespace {

constexpr std::size_t kMostSamplers = 32;
constexpr std::string_view kAdaptive = "adaptive_p";
constexpr char kAdaptiveLetter = 'a';

struct SamplerName {
  std::string_view name;
  std::string_view other_name;
  char letter;  // llama-server takes a text of letters as well; 0: llama.cpp lacks the sampler
  SamplerStep step;
};

constexpr auto kSamplers = [] {
  std::array<SamplerName, Filters::kInfos.size() + 3> all;
  all[0] = {"penalties", "penalties", 'e', SamplerStep::kPenalties};
  all[1] = {"dry", "dry", 'd', SamplerStep::kDry};
  std::ranges::transform(Filters::kInfos, all.begin() + 2, [](const FilterInfo& filter) {
    return SamplerName{filter.name, filter.other_name, filter.letter, filter.step};
  });
  all.back() = {"temperature", "temp", 't', SamplerStep::kTemperature};
  return all;
}();

void turn_off(SamplingParams& sampling, SamplerStep step) {
  switch (step) {
    case SamplerStep::kPenalties:
      sampling.repetition_penalty = 1.0F;
      sampling.frequency_penalty = sampling.presence_penalty = 0.0F;
      return;
    case SamplerStep::kDry: sampling.dry = {}; return;
    case SamplerStep::kTemperature:
      sampling.temperature = 1.0F;
      sampling.dynatemp_range = 0.0F;
      return;
    default: sampling.turn_off(step);
  }
}

// Whether `steps` are some of `order`, in its order.
bool is_part_of(std::span<const SamplerStep> steps, std::span<const SamplerStep> order) {
  auto at = order.begin();
  for (const SamplerStep step : steps) {
    at = std::find(at, order.end(), step);
    if (at == order.end()) return false;
    ++at;
  }
  return true;
}

struct NamedSamplers {
  std::vector<SamplerStep> steps;
  bool has_adaptive = false;
};

std::optional<NamedSamplers> read_names(FieldReader& reader, const std::vector<std::string>& names) {
  NamedSamplers named;
  for (const std::string& name : names) {
    const auto* const found = std::find_if(std::begin(kSamplers), std::end(kSamplers), [&](const SamplerName& each) {
      return each.name == name || each.other_name == name;
    });
    if (found != std::end(kSamplers)) {
      named.steps.push_back(found->step);
    } else if (name == kAdaptive) {
      named.has_adaptive = true;
    } else {
      std::string known;
      for (const SamplerName& each : kSamplers)
        known += fmt::format("'{}', ", each.name);
      reader.fail(fields::generation::kSamplers,
                  fmt::format("Invalid value in 'samplers': '{}' is none of {}'{}'", name, known, kAdaptive));
      return std::nullopt;
    }
  }
  return named;
}

// Letters that name no sampler are kept as names, which are refused later.
std::vector<std::string> names_of_letters(const std::string& letters) {
  std::vector<std::string> names;
  for (const char letter : letters.substr(0, kMostSamplers)) {
    const auto* const found = std::find_if(std::begin(kSamplers), std::end(kSamplers), [&](const SamplerName& each) {
      return letter != 0 && each.letter == letter;
    });
    if (found != std::end(kSamplers)) {
      names.emplace_back(found->name);
    } else {
      names.emplace_back(letter == kAdaptiveLetter ? std::string(kAdaptive) : std::string(1, letter));
    }
  }
  return names;
}

}  // namespace

void read_samplers(FieldReader& reader, SamplingParams& sampling) {
  using Rows = std::span<const fields::Field>;
  for (const Rows rows : {Rows(fields::kFilterRows), Rows(fields::kPenaltyRows)}) {
    for (const fields::Field& row : rows) {
      if (const auto value = reader.value(row)) row.target.set(sampling, *value);
    }
  }
}

void read_sampler_order(FieldReader& reader, SamplingParams& sampling) {
  const Json* given = reader.find(fields::generation::kSamplers);
  if (given == nullptr) return;
  std::vector<std::string> names;
  if (given->is_string()) {
    names = names_of_letters(given->get_ref<const std::string&>());
  } else if (auto listed = reader.strings(fields::generation::kSamplers, kMostSamplers)) {
    names = *std::move(listed);
  }
  if (reader.error()) return;
  const auto named = read_names(reader, names);
  if (!named) return;
  for (const SamplerName& each : kSamplers) {
    if (std::ranges::find(named->steps, each.step) == named->steps.end()) turn_off(sampling, each.step);
  }
  if (!named->has_adaptive) sampling.adaptive.target = -1.0F;
  for (const bool temperature_last : {false, true}) {
    if (!is_part_of(named->steps, usual_order(temperature_last))) continue;
    sampling.temperature_last = temperature_last;
    return;
  }
  sampling.order = named->steps;
}

Json sampler_names(const SamplingParams& sampling) {
  Json names = Json::array();
  const auto usual = usual_order(sampling.temperature_last);
  for (const SamplerStep step : sampling.order ? std::span<const SamplerStep>(*sampling.order) : usual) {
    for (const SamplerName& each : kSamplers) {
      // Filters that llama.cpp lacks are named if they are on.
      if (each.step == step && (each.letter != 0 || sampling.is_on(step))) names.push_back(each.name);
    }
  }
  if (sampling.adaptive.target >= 0.0F) names.push_back(kAdaptive);
  return names;
}

void add_settings(const SamplingParams& sampling, std::span<const fields::Field> rows, Json& settings) {
  for (const fields::Field& row : rows) {
    const auto is_same = [&row](const fields::Field& other) { return other.target.get == row.target.get; };
    if (&*std::ranges::find_if(rows, is_same) != &row) continue;  // vLLM's name of the same member
    const std::string name(row.name);
    const double value = row.target.get(sampling);
    if (row.type.kind == fields::Kind::kNumber) {
      settings[name] = value;
    } else if (row.type.kind == fields::Kind::kInteger) {
      settings[name] = static_cast<std::int64_t>(value);
    } else {
      settings[name] = value != 0.0;
    }
  }
}

}  // namespace quire
