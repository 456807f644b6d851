// A request to llama-server's own completion endpoints: their forms of prompts, names for fields and defaults.
// Pure functions; any thread. Source: llama.cpp, tools/server/README.md, "POST /completion" and "POST /infill".
#pragma once

#include <string>
#include <vector>

#include "server/api/generation/generation_fields.h"
#include "server/api/generation/prompt_list.h"

namespace quire {

struct LlamaCompletionRequest {
  GenerationFields fields;
  std::vector<Prompt> prompts;               // text: with its special tokens written out
  bool wants_list = false;                   // several prompts, or n: the results stand in an array
  std::int32_t num_predict = -1;             // -1: to the context's end
  std::int32_t num_probs = 0;                // likely tokens to report with each token
  bool return_tokens = false;                // ids in a whole result; a stream has them always
  bool timings_per_token = false;            // adds timings to each event of a stream
  std::vector<std::string> response_fields;  // of the result, "a/b" for a member of a member; empty: all
};

// All but the prompts. Errors stay in the reader.
LlamaCompletionRequest read_llama_fields(FieldReader& reader, const ServedModel& model);
// `prompt`: an array that holds a token id is one prompt, any other several; an object has a `prompt_string` with
// "<__media__>" for each picture of its `multimodal_data`.
void read_llama_prompts(FieldReader& reader, const ServedModel& model, const Call& call,
                        LlamaCompletionRequest& request);
// Reads `input_prefix`, `input_suffix`, `input_extra` and `prompt`, which follows the prefix, into a prompt for the
// text between prefix and suffix.
void read_infill_prompt(FieldReader& reader, const ServedModel& model, const Call& call,
                        LlamaCompletionRequest& request);

// The settings that are in force, under llama-server's names.
Json llama_settings(const LlamaCompletionRequest& request);
// Settings of a request that sets none of its fields.
Json llama_default_settings(const ServedModel& model);

}  // namespace quire
