// Recorded and made-up traffic: arrivals, lengths, and what prompts share. One thread at a time.
// Formats: Azure's LLM inference traces (CSV: TIMESTAMP,ContextTokens,GeneratedTokens) and Mooncake's (JSON lines with
// prefix hashes of 512-token blocks; .gz too), whose lines may have images.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace quire::sim {

struct TraceImage {
  std::int32_t num_tokens = 0;
  double seconds = 0.0;    // of the encoder
  std::int32_t id = 0;     // equal ids: the same image
  std::int32_t begin = 0;  // its first token in the prompt
};
inline constexpr std::int32_t kMostImageId = (1 << 29) - 1;

struct TraceRequest {
  double arrival_s = 0.0;  // from the trace's beginning
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 1;
  std::vector<std::int32_t> hash_ids;  // equal ids: equal blocks of hash_block_size tokens; empty: nothing is shared
  std::string key;                     // API key of the request
  std::vector<TraceImage> images{};    // in the order of their tokens, which count as the prompt's
};

// Tokens per hash id of a trace.
inline constexpr std::int32_t kHashBlockSize = 512;

// Requests in order of arrival.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  virtual bool next(TraceRequest& request) = 0;  // false at the end
};

// The whole file is read and checked at once: an error names file and line. `speed` > 1: arrivals come faster.
Result<std::unique_ptr<TraceSource>> open_trace(const std::string& path, double speed);

// An arrival process with gamma-distributed gaps and log-normal lengths; requests of a group share their first tokens.
struct SyntheticTraffic {
  std::int64_t num_requests = 10'000;
  double rate = 1.0;    // requests a second
  double gap_cv = 1.0;  // coefficient of variation of the gaps: 1 is Poisson, more is burstier
  double prompt_mean = 1000.0;
  double prompt_cv = 1.0;
  double output_mean = 200.0;
  double output_cv = 1.0;
  std::int32_t max_tokens = 32'768;  // limit of a prompt and of an output
  std::int32_t shared_prefix = 0;    // tokens, rounded down to whole hash blocks
  std::int32_t num_groups = 1;
  std::int32_t num_keys = 1;
  std::uint64_t seed = 1;
};
// "rate=5,requests=100000,prompt=1000,output=200,..."; an unknown name is an error that lists the known ones.
Result<SyntheticTraffic> parse_synthetic(const std::string& text);
std::unique_ptr<TraceSource> make_synthetic(const SyntheticTraffic& traffic);

// The prompt as tokens: equal hash ids and equal images give equal tokens, all other tokens are the request's own.
// `number`: the request's.
std::vector<TokenId> prompt_tokens(const TraceRequest& request, std::int64_t number);

}  // namespace quire::sim
