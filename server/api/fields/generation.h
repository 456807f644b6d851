// The fields of every endpoint that generates. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

// Filters of the distribution, each a member of SamplingParams. llama-server's endpoints return their values. Two rows
// of one member are two names: the later row counts in a request, the first names the returned value.
inline constexpr Field kFilterRows[] = {
    sampling<&SamplingParams::temperature>("temperature", number(kTemperatureRange), "0.5"),
    sampling<&SamplingParams::top_k>("top_k", integer(kTopKRange), "5"),
    sampling<&SamplingParams::top_p>("top_p", number(kProbabilityRange), "0.9"),
    sampling<&SamplingParams::top_a>(
        "top_a", number(kProbabilityRange), "0.2",
        "keeps tokens with at least this much times the square of the best probability, as in KoboldCpp"),
    sampling<&SamplingParams::min_p>("min_p", number(kProbabilityRange), "0.1"),
    sampling<&SamplingParams::typical_p>("typical_p", number(kProbabilityRange), "0.9"),
    sampling<&SamplingParams::xtc_probability>("xtc_probability", number(kProbabilityRange), "0.1"),
    sampling<&SamplingParams::xtc_threshold>("xtc_threshold", number(kProbabilityRange), "0.1"),
    sampling<&SamplingParams::top_n_sigma>(
        "top_n_sigma", number(-1e9, 1e9), "1",
        "removes logits more than this many standard deviations below the best; 0 or less: off"),
    sampling<&SamplingParams::min_keep>("min_keep", integer(0, kMostInt32), "2",
                                        "the least number of tokens that typical_p, top_p, min_p and XTC keep"),
    sampling<&SamplingParams::dynatemp_range>(
        "dynatemp_range", number(0, 100), "0.5",
        "dynamic temperature: temperature plus or minus this, by the distribution's entropy"),
    sampling<&SamplingParams::dynatemp_exponent>("dynatemp_exponent", number(0, 100), "2",
                                                 "exponent of the normalized entropy"),
    sampling<&SamplingParams::mirostat, &MirostatParams::version>(
        "mirostat", integer(0, 2), "2",
        "mirostat's version 1 or 2, instead of penalties and filters; without speculative decoding"),
    sampling<&SamplingParams::mirostat, &MirostatParams::tau>("mirostat_tau", number(0, 100), "3",
                                                              "the target surprise, in bits"),
    sampling<&SamplingParams::mirostat, &MirostatParams::eta>("mirostat_eta", number(0, 1), "0.3", "the learning rate"),
    sampling<&SamplingParams::adaptive, &AdaptiveParams::target>(
        "adaptive_target", number(-1, 1), "0.4",
        "adaptive-p: the target probability; negative: off; without speculative decoding"),
    sampling<&SamplingParams::adaptive, &AdaptiveParams::decay>("adaptive_decay", number(0, 0.99), "0.5",
                                                                "decay of the weight of earlier tokens"),
};

// Penalties of repetition; the rules of kFilterRows hold here too.
inline constexpr Field kPenaltyRows[] = {
    sampling<&SamplingParams::penalty_last_n>(
        "repeat_last_n", integer(-1, kMostInt32), "64",
        "the three penalties count the last N tokens, prompt included, as in llama-server; absent: as in vLLM"),
    sampling<&SamplingParams::repetition_penalty>("repeat_penalty", number(kRepetitionPenaltyRange), "1.1",
                                                  "llama-server's name"),
    sampling<&SamplingParams::repetition_penalty>("repetition_penalty", number(kRepetitionPenaltyRange), "1.1"),
    sampling<&SamplingParams::presence_penalty>("presence_penalty", number(-2, 2), "0.5"),
    sampling<&SamplingParams::frequency_penalty>("frequency_penalty", number(-2, 2), "0.5"),
    sampling<&SamplingParams::dry, &DryParams::multiplier>("dry_multiplier", number(0, 100), "0.8"),
    sampling<&SamplingParams::dry, &DryParams::base>("dry_base", number(1, 100), "1.75"),
    sampling<&SamplingParams::dry, &DryParams::allowed_length>("dry_allowed_length", integer(0, kMostInt32), "2"),
    sampling<&SamplingParams::dry, &DryParams::penalty_last_n>("dry_penalty_last_n", integer(-1, kMostInt32), "-1"),
};

// Shared by all APIs with pictures.
inline constexpr Field kPictureSettings{
    "mm_processor_kwargs", object(), R"({"max_pixels":100000})",
    "min_pixels and max_pixels of each image, also as size.shortest_edge and size.longest_edge; size.height and "
    "size.width where the model reads images of that size only; other members are refused"};

namespace generation {

inline constexpr Field kNoTransfer = refused("kv_transfer_params", "{}", "completions and chat completions take it");
inline constexpr Field kModel{"model", text(), R"("fake")", "by name or alias; absent: the first model"};
inline constexpr Field kSamplers{
    "samplers", one_of("array|string"), R"(["top_k","temperature"])",
    "penalties, dry, top_n_sigma, top_k, typ_p, top_p, top_a, min_p, xtc, temperature in any order; adaptive_p is "
    "always last; samplers not listed are off; or llama-server's letters"};
inline constexpr Field kDrySequenceBreakers{"dry_sequence_breakers", texts(64), R"(["\n"])"};
inline constexpr Field kLogitBias{"logit_bias", one_of("object|array"), R"({"97":1})",
                                  "or pairs: [[token id or text, bias], ...]; the bias false forbids a token"};
inline constexpr Field kSeed{"seed", integer(), "1", "-1: random"};
inline constexpr Field kStop{"stop", text_or_texts(kMostStops), R"(["x"])", "up to 64 strings, 64 KiB in total"};
inline constexpr Field kStopTokenIds{"stop_token_ids", token_ids(), "[5]"};
inline constexpr Field kIncludeStopStrInOutput{"include_stop_str_in_output", boolean(), "true"};
inline constexpr Field kIgnoreEos{"ignore_eos", boolean(), "true"};
inline constexpr Field kMinTokens{"min_tokens", integer(0, kMostInt32), "1"};
inline constexpr Field kBadWords{"bad_words", texts(1024), R"(["x"])"};
inline constexpr Field kAllowedTokenIds{"allowed_token_ids", token_ids(), "[97]"};
inline constexpr Field kSkipSpecialTokens{"skip_special_tokens", boolean(), "true"};
inline constexpr Field kTruncatePromptTokens{"truncate_prompt_tokens", integer(-1, kMostInt32), "8",
                                             "keeps N tokens of the prompt, by default the last; -1: as many as fit"};
inline constexpr Field kStream{"stream", boolean(), "true"};
inline constexpr Field kSsePingInterval{
    "sse_ping_interval", integer(-1, 86400), "10",
    "seconds without an event after which a stream gets a comment line; 0 or less: none; absent: server.timeout.ping"};
inline constexpr Field kPriority{"priority", integer(-kMostInt32, kMostInt32), "1"};
inline constexpr Field kCacheSalt{"cache_salt", text(kMostHintBytes), R"("s")", "up to 1,024 bytes"};
inline constexpr Field kIdSlot{"id_slot", integer(-1, kMostInt32), "1",
                               "the slot under which an admin can save the conversation", Support::kAccepted};
inline constexpr Field kTimeout{"timeout", number(0.001, 86400), "60", "seconds, then the request fails"};
inline constexpr Field kSpeculativeConfig{
    "speculative_config", one_of("object|string"), R"({"method":"ngram","num_speculative_tokens":4})",
    "method: ngram (prompt_lookup), mtp if the model is served with it, draft (draft_model) if there is a draft model, "
    "or none; or the string off; absent: as configured. The generated tokens do not change"};
inline constexpr Field kStructuredOutputs{
    "structured_outputs", object(), R"({"regex":"a+"})",
    "json, regex, choice, grammar, json_object, structural_tag; disable_any_whitespace: JSON without white space"};
inline constexpr Field kGuidedJson{"guided_json", one_of("object|string|boolean"), R"({"type":"object"})"};
inline constexpr Field kGuidedRegex{"guided_regex", text(), R"("a+")"};
inline constexpr Field kGuidedChoice{"guided_choice", texts(4096), R"(["a"])"};
inline constexpr Field kGuidedGrammar{"guided_grammar", text(), R"("root ::= \"a\"")"};
inline constexpr Field kGuidedJsonObject{"guided_json_object", boolean(), "true"};
inline constexpr Field kGrammar{"grammar", text(), R"("root ::= \"a\"")", "GBNF, as llama-server's"};
inline constexpr Field kJsonSchema{"json_schema", one_of("object|string|boolean"), R"({"type":"object"})",
                                   "as llama-server's"};
inline constexpr Field kTruncationSide{
    "truncation_side", words("left|right"), R"("right")",
    "where truncate_prompt_tokens cuts the prompt: at its beginning (left, default) or its end"};
inline constexpr Field kRegex{"regex", text(), R"("a+")", "SGLang's name"};
inline constexpr Field kEbnf{"ebnf", text(), R"("root ::= \"a\"")", "SGLang's name"};
inline constexpr Field kLora{"lora", array(), "[]",
                             "llama-server's adapter selection: [{\"id\": ID, \"scale\": 1}], ID as in /lora-adapters; "
                             "or give the adapter's name as model"};
inline constexpr Field kGuidedWhitespacePattern =
    refused("guided_whitespace_pattern", R"("x")", "white space is that of JSON");
inline constexpr Field kMultimodalData = refused(
    "multimodal_data", R"(["x"])", "it stands beside 'prompt_string' in an object that is the prompt of /completion");
inline constexpr Field kNIndent = refused("n_indent", "1", "lines are not indented", "[0]");
inline constexpr Field kTMaxPredictMs = refused("t_max_predict_ms", "5", "'timeout' bounds a request's time", "[0]");
inline constexpr Field kPostSamplingProbs =
    refused("post_sampling_probs", "true", "probabilities are the model's own", "[false]");
inline constexpr Field kAddSpecialTokens{"add_special_tokens", boolean(), "false"};
inline constexpr Field kUser{"user", text(), R"("u")", "accepted; nothing depends on it", Support::kAccepted};
inline constexpr Field kReturnProgress{
    "return_progress", boolean(), "true",
    "with stream: chunks with prompt_progress (total, cache, processed, time_ms) while the prompt is computed"};
inline constexpr Field kStreamOptions{
    "stream_options", object(), R"({"include_usage":true})",
    "with stream: include_usage, continuous_usage_stats; include_obfuscation is refused", Support::kConditional};
inline constexpr Field kMaxTokens{"max_tokens", integer(0, kMostInt32), "5",
                                  "an upper bound, as is the rest of the context"};
inline constexpr Field kN{"n", integer(1, kMostChoices), "2"};
inline constexpr Field kPromptLogprobs{"prompt_logprobs", integer(0, kMostLogprobs), "1",
                                       "not with stream; prompt tokens x (1 + this value) is at most 262144"};
inline constexpr Field kReturnTokenIds{"return_token_ids", boolean(), "true",
                                       "includes the token that ended the text, as in vLLM"};
inline constexpr Field kReturnTokensAsTokenIds{"return_tokens_as_token_ids", boolean(), "true"};
inline constexpr Field kRequestId{"request_id", text(256), R"("r")", "the response's id ends with it"};
inline constexpr Field kResponseFormat{"response_format", object(), R"({"type":"json_object"})",
                                       "text, json_object, json_schema, structural_tag"};
inline constexpr Field kKvTransferParams{
    "kv_transfer_params", object(), R"({"do_remote_decode":true})",
    "disaggregated prefill, as in vLLM: do_remote_decode computes the prompt, waits until its blocks are in the shared "
    "store and returns the parameters for do_remote_prefill on another replica"};
inline constexpr Field kNPredict{"n_predict", integer(-2, kMostInt32), "5",
                                 "llama-server's name for max_tokens; -1: to the context's end"};

}  // namespace generation

extern const FieldTable kGenerationFields;
extern const FieldTable kNativeFields;
extern const FieldTable kChoiceFields;

}  // namespace quire::fields
