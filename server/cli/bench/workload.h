// Workload: the list of requests that a load run sends, fixed by its options and seed alone, so that every server gets
// the same work. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "server/cli/bench/random_images.h"

namespace quire::bench {

struct Range {
  std::int64_t low = 0;
  std::int64_t high = 0;  // inclusive
};

// "128-512" or "256".
std::optional<Range> parse_range(const std::string& text);

// Kinds of prompts. edit: each has a numbered text of its own, which the answer has to repeat with one word replaced;
// max_tokens allows for it. agent: conversations of kAgentTurns turns that share a system text of shared_prefix_words
// words (0: 600), each prompt being the previous turn's plus a tool's result; turns of the same number arrive together.
// rag: each has kRagDocuments of a fixed set of documents, some more often than others, and a question. prompt_words:
// the length of an edited text, of a turn's addition, or of a document.
enum class Scenario : std::uint8_t { kWords, kEdit, kAgent, kRag };
std::optional<Scenario> scenario_of(std::string_view name);

inline constexpr std::int64_t kAgentTurns = 4;
inline constexpr std::int64_t kRagDocuments = 3;
inline constexpr std::int64_t kRagCorpus = 24;

struct WorkloadOptions {
  Scenario scenario = Scenario::kWords;
  std::int64_t num_requests = 128;
  Range prompt_words{128, 512};  // common English words: one token each in the usual vocabularies
  Range output_tokens{64, 128};
  std::int64_t shared_prefix_words = 0;  // the same first words in every prompt
  double requests_per_second = 0;        // 0: closed loop; otherwise Poisson arrivals at this rate
  std::filesystem::path trace;           // recorded lengths and arrivals: Azure's .csv or Mooncake's .jsonl[.gz]
  double trace_speed = 1;                // factor by which the trace's arrivals are sped up
  std::int64_t num_images = 0;           // in each request; 0: prompts of text
  std::vector<ImageSize> image_sizes{{256, 256}, {720, 1280}};  // equally often
  std::uint64_t seed = 1;
};

struct PlannedRequest {
  std::string prompt;
  std::int64_t max_tokens = 0;
  std::optional<double> arrival_seconds;  // since the start; absent in a closed loop
  std::vector<std::string> image_urls{};  // before the prompt, which is then a chat message
};

// Errors: an unreadable or malformed trace.
Result<std::vector<PlannedRequest>> plan_workload(const WorkloadOptions& options);

}  // namespace quire::bench
