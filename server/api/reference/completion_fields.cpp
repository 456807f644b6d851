#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kCompletionPaths[] = {"/v1/completions"};
constexpr FieldRow kCompletionRows[] = {
    {"parse_special", boolean(), Support::kSupported, "false",
     "true (default): control tokens written in a text are read as tokens; false: as text"},
    {"prompt", one_of("string|array"), Support::kSupported, R"("x")",
     "a string, strings, token ids, lists of token ids"},
    {"echo", boolean(), Support::kSupported, "true", ""},
    {"logprobs", integer(0, 20), Support::kSupported, "1", "0 to 20"},
    {"best_of", integer(0, 128), Support::kSupported, "1", "not with stream if larger than n"},
    {"suffix", text(), Support::kConditional, R"("x")",
     "the text after the gap, for models that fill in the middle; others refuse it"},
};

constexpr std::string_view kLlamaPaths[] = {"/completion"};
constexpr FieldRow kLlamaRows[] = {
    {"prompt", one_of("string|array|object"), Support::kSupported, R"("x")",
     "a text, token ids, a list of both, or several such prompts (the answer is an array); for models that see, an "
     "object with prompt_string, whose markers <__media__> stand for the images of multimodal_data, in base64"},
    {"n_predict", integer(-2, kMostInt32), Support::kSupported, "5", "-1: to the context's end"},
    {"n_probs", integer(0, 100), Support::kSupported, "2", "0 to 100, as completion_probabilities"},
    {"return_tokens", boolean(), Support::kSupported, "true", "token ids without stream; a stream always has them"},
    {"timings_per_token", boolean(), Support::kSupported, "true", ""},
    {"response_fields", texts(64), Support::kSupported, R"(["content","generation_settings/seed"])", ""},
    {"repeat_last_n", integer(-1, kMostInt32), Support::kSupported, "64", ""},
    {"cache_prompt", boolean(), Support::kAccepted, "false", "nothing in the answer depends on it"},
    {"id_slot", integer(-1, kMostInt32), Support::kAccepted, "1",
     "the slot under which an admin can save the conversation"},
    {"n_keep", integer(-1, kMostInt32), Support::kAccepted, "4", "the context is never shifted"},
    {"n_indent", only("[0]"), Support::kRefused, "1", ""},
    {"t_max_predict_ms", only("[0]"), Support::kRefused, "1", "`timeout` bounds a request's time"},
    {"post_sampling_probs", only("[false]"), Support::kRefused, "true", "probabilities are those before sampling"},
    {"return_progress", boolean(), Support::kSupported, "true",
     "with stream: events with prompt_progress while the prompt is computed"},
    {"multimodal_data", only("[]"), Support::kRefused, R"(["x"])", "it stands beside prompt_string"},
};

constexpr std::string_view kInfillPaths[] = {"/infill"};
constexpr FieldRow kInfillRows[] = {
    {"input_prefix", text(), Support::kConditional, R"("x")", "required; for models that fill in the middle"},
    {"input_suffix", text(), Support::kConditional, R"("x")", "required; for models that fill in the middle"},
    {"input_extra", array(), Support::kConditional, R"([{"filename":"a.py","text":"x"}])",
     "context files, for models that fill in the middle"},
    {"prompt", text(), Support::kConditional, R"("x")", "added to input_prefix; for models that fill in the middle"},
};

constexpr std::string_view kTokenizePaths[] = {"/tokenize"};
constexpr FieldRow kTokenizeRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", "by name or alias; absent: the first model"},
    {"content", text(), Support::kSupported, R"("y")", "llama-server's name; no special tokens by default"},
    {"prompt", text(), Support::kSupported, R"("y")", "vLLM's name; adds special tokens by default"},
    {"messages", array(), Support::kSupported, R"([{"role":"user","content":"y"}])",
     "a chat, rendered with the model's template"},
    {"add_special", boolean(), Support::kSupported, "true", "llama-server's name of add_special_tokens"},
    {"add_special_tokens", boolean(), Support::kSupported, "false", ""},
    {"parse_special", boolean(), Support::kSupported, "false",
     "true (default): control tokens written in a text are read as tokens; false: as text"},
    {"with_pieces", boolean(), Support::kSupported, "true", "tokens as {id, piece}"},
    {"return_token_strs", boolean(), Support::kSupported, "true", "token_strs beside tokens"},
};

constexpr std::string_view kTokenGenerationPaths[] = {"/inference/v1/generate"};
constexpr FieldRow kTokenGenerationRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", "by name or alias; absent: the first model"},
    {"token_ids", token_ids(), Support::kSupported, "[97]", "required: the prompt"},
    {"sampling_params", object(), Support::kSupported, R"({"max_tokens":3})",
     "the fields of a completion that concern sampling and constraints; max_tokens is 16 by default, logprobs come as "
     "a chat's"},
    {"stream", boolean(), Support::kSupported, "true", "events with the tokens as they come, as vLLM's"},
    {"stream_options", object(), Support::kSupported, R"({"include_usage":true})", "with 'stream' only"},
    {"request_id", text(), Support::kSupported, R"("r")", "the answer repeats it"},
    {"cache_salt", text(), Support::kSupported, R"("s")", "prefixes are shared within one salt only"},
    {"priority", integer(-kMostInt32, kMostInt32), Support::kSupported, "1", "lower runs earlier"},
};

constexpr std::string_view kDetokenizePaths[] = {"/detokenize"};
constexpr FieldRow kDetokenizeRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", "by name or alias; absent: the first model"},
    {"tokens", token_ids(), Support::kSupported, "[97]", "required"},
    {"skip_special_tokens", boolean(), Support::kSupported, "false",
     "control tokens are left out unless this is false"},
};

}  // namespace

const FieldTable kCompletionFields{"Completions", "", kCompletionPaths, kCompletionRows};
const FieldTable kLlamaFields{"llama-server's completion", "", kLlamaPaths, kLlamaRows};
const FieldTable kInfillFields{"llama-server's infill", "", kInfillPaths, kInfillRows};
const FieldTable kTokenGenerationFields{"vLLM's generation from token ids", "", kTokenGenerationPaths,
                                        kTokenGenerationRows};
const FieldTable kTokenizeFields{"Tokens of a text", "", kTokenizePaths, kTokenizeRows};
const FieldTable kDetokenizeFields{"Text of tokens", "", kDetokenizePaths, kDetokenizeRows};

}  // namespace quire::reference
