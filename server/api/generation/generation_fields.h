// The fields that completions and chat completions share: OpenAI's sampling fields and the extensions that users of
// vLLM and llama-server know, read and range-checked into SamplingParams. Pure functions; any thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/shared_prefix.h"
#include "core/request/speculation_options.h"
#include "core/sampling/sampling_params.h"
#include "server/api/common/field_reader.h"
#include "server/api/common/operation.h"
#include "server/api/common/served_model.h"

namespace quire {

// Bounds for values that are kept while an answer is made, or longer; they hold whatever the bounds of bodies are.
inline constexpr std::size_t kMaxStopBytes = 64 * 1024;      // total over a request's stop strings
inline constexpr std::size_t kMaxMetadataBytes = 64 * 1024;  // size as JSON text

struct GenerationFields {
  SamplingParams sampling;  // max_tokens is set when the prompt's length is known
  std::optional<std::int32_t> max_tokens;
  std::int32_t num_choices = 1;
  std::int32_t best_of = 1;
  std::vector<std::string> stop;
  bool include_stop_in_output = false;
  bool skip_special_tokens = true;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool return_progress = false;                       // a stream begins with how much of the prompt is computed
  std::optional<std::chrono::seconds> ping_interval;  // absent: the server's; 0: no pings
  bool tokens_as_ids = false;                         // logprobs name tokens "token_id:17"
  std::optional<std::int32_t> truncate_prompt_tokens;
  bool to_context_end = false;           // n_predict -1: no default of max_tokens applies
  bool prompt_only = false;              // the answer has no token: the one that the engine makes is left out
  bool truncate_end = false;             // a truncated prompt keeps its first tokens
  std::optional<std::int32_t> priority;  // absent: the key's class
  std::int32_t slot = -1;                // slot to save the conversation under; -1: any
  std::string cache_salt;
  bool is_retained = false;  // the prompt and the answer stay in the cache for longer
  std::string request_id;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<SpeculationOptions> speculation;  // absent: the server's
  PrefixTransfer transfer;
  std::string id_tail;  // end of the response's id; empty: random
};

// Errors stay in the reader. `model` gives the tokenizer that bad_words and token ids are judged by, and its own
// defaults, which come before `neutral`, those of the API.
GenerationFields read_generation_fields(FieldReader& reader, const ServedModel& model,
                                        const SamplingParams& neutral = {});

// A client's own labels, to be returned with the response: at most 16 texts. null where there are none.
Json read_metadata(FieldReader& reader);
// Notes an error where a stop string is empty, or they are too long together.
void check_stops(FieldReader& reader, const fields::Field& field, const std::vector<std::string>& stops);

// Reads prompt_cache_key and prompt_cache_retention: whether the computed prefix is kept for a next turn. `continues`:
// the request continues another one.
void read_retention(FieldReader& reader, GenerationFields& fields, bool continues);

// The response's id: the request's own, or a fresh one.
std::string response_id(std::string_view prefix, const GenerationFields& fields);

// Origin of an answer that another daemon may continue; the fields that a continued answer starts with are set. Nothing
// if the answer's events depend on more than its origin. An error if another model began it.
Result<std::optional<StreamOrigin>> take_origin(const Call& call, const ServedModel& model, std::size_t num_prompts,
                                                GenerationFields& fields);

// Reads the fields of fields::kFilterRows and kPenaltyRows into the members that the rows name. Errors stay in the
// reader.
void read_samplers(FieldReader& reader, SamplingParams& sampling);
// `samplers`, the order of llama.cpp. Call after all other sampling fields: samplers that `samplers` does not list are
// turned off.
void read_sampler_order(FieldReader& reader, SamplingParams& sampling);
// Adds the values of such rows by their names.
void add_settings(const SamplingParams& sampling, std::span<const fields::Field> rows, Json& settings);
// The samplers that are in force, by llama.cpp's names.
Json sampler_names(const SamplingParams& sampling);

// kv_transfer_params, as vLLM's clients and routers send them: a replica computes a prompt and answers where its blocks
// are; another takes them over with the same parameters. Errors stay in the reader. Members of other engines' transfers
// are taken and not used.
PrefixTransfer read_prefix_transfer(FieldReader& reader);

// Fields for the replica that decodes; null: nothing is known of the blocks.
Json prefix_transfer_json(const std::shared_ptr<const SharedPrefix>& published);

}  // namespace quire
