// Requests with drafts of which a share is right, and the same without drafts.
#pragma once

#include <string>
#include <vector>

#include "tests/support/oracle_drafter.h"
#include "tests/unit/engine/harness.h"

namespace quire::test {

inline HarnessOptions one_in_flight() {
  HarnessOptions options{.num_blocks = 400};
  options.deferred_seed.reset();
  options.price = {.fixed = 0.01, .stream = 0.0005, .prompt_token = 0.0001};
  return options;
}

inline HarnessOptions drafted(const KnownTexts& texts, std::uint32_t percent, std::int32_t max_tokens = 8) {
  HarnessOptions options = one_in_flight();
  options.engine.speculation = {SpeculationMethod::kPromptLookup, max_tokens};
  options.engine.make_drafter = OracleDrafter::factory(texts, percent, 60);
  return options;
}

struct Run {
  std::vector<ChoiceOutput> choices;
  EngineStats stats;
  int num_steps = 0;
};

inline Run run_of(const HarnessOptions& options, const Request& request) {
  Harness harness(options);
  const auto sink = harness.submit(request);
  Run run;
  run.num_steps = harness.run();
  run.choices = sink->choices;
  run.stats = harness.engine.stats();
  return run;
}

inline Request named(Request request) {
  request.id = "known";
  return request;
}

inline KnownTexts texts_of(const Request& request) {
  KnownTexts texts;
  const Run alone = run_of(one_in_flight(), request);
  for (std::size_t i = 0; i < alone.choices.size(); ++i)
    texts[{request.id, static_cast<std::int32_t>(i)}] = alone.choices[i].tokens;
  return texts;
}

}  // namespace quire::test
