#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kGenerationPaths[] = {"/v1/completions", "/v1/chat/completions", "/v1/responses"};
constexpr FieldRow kGenerationRows[] = {
    {"model", text(), Support::kSupported, R"("fake")", "by name or alias; absent: the first model"},
    {"temperature", number(0, 100), Support::kSupported, "0.5", ""},
    {"top_p", number(0, 1), Support::kSupported, "0.9", ""},
    {"top_k", integer(-1, kMostInt32), Support::kSupported, "5", ""},
    {"min_p", number(0, 1), Support::kSupported, "0.1", ""},
    {"typical_p", number(0, 1), Support::kSupported, "0.9", ""},
    {"xtc_probability", number(0, 1), Support::kSupported, "0.1", ""},
    {"xtc_threshold", number(0, 1), Support::kSupported, "0.1", ""},
    {"top_n_sigma", number(-1e9, 1e9), Support::kSupported, "1",
     "keeps logits so many standard deviations below the best; zero and less are off"},
    {"min_keep", integer(0, kMostInt32), Support::kSupported, "2",
     "typical_p, top_p, min_p and XTC leave so many tokens at least"},
    {"dynatemp_range", number(0, 100), Support::kSupported, "0.5",
     "the temperature moves by as much, by the distribution's entropy"},
    {"dynatemp_exponent", number(0, 100), Support::kSupported, "2", "of the entropy's share"},
    {"mirostat", integer(0, 2), Support::kSupported, "2",
     "1 or 2: the version, in the place of penalties and filters; such a text is not drafted"},
    {"mirostat_tau", number(0, 100), Support::kSupported, "3", "the surprise aimed at, in bits"},
    {"mirostat_eta", number(0, 1), Support::kSupported, "0.3", "how fast it follows"},
    {"adaptive_target", number(-1, 1), Support::kSupported, "0.4",
     "adaptive-p: the probability aimed at; negative: off; such a text is not drafted"},
    {"adaptive_decay", number(0, 0.99), Support::kSupported, "0.5", "of what was drawn before"},
    {"samplers", one_of("array|string"), Support::kSupported, R"(["top_k","temperature"])",
     "penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature, in any order, and adaptive_p, which "
     "is "
     "last; what is left out is off; or llama-server's letters"},
    {"repetition_penalty", number(1e-6, 100), Support::kSupported, "1.1", ""},
    {"repeat_penalty", number(1e-6, 100), Support::kSupported, "1.1", "llama-server's name"},
    {"repeat_last_n", integer(-1, kMostInt32), Support::kSupported, "64",
     "the three penalties count these last tokens, prompt or not, as llama-server's do; absent: as vLLM's"},
    {"frequency_penalty", number(-2, 2), Support::kSupported, "0.5", ""},
    {"presence_penalty", number(-2, 2), Support::kSupported, "0.5", ""},
    {"dry_multiplier", number(0, 100), Support::kSupported, "0.8", ""},
    {"dry_base", number(1, 100), Support::kSupported, "1.75", ""},
    {"dry_allowed_length", integer(0, kMostInt32), Support::kSupported, "2", ""},
    {"dry_penalty_last_n", integer(-1, kMostInt32), Support::kSupported, "-1", ""},
    {"dry_sequence_breakers", texts(64), Support::kSupported, R"(["\n"])", ""},
    {"logit_bias", one_of("object|array"), Support::kSupported, R"({"97":1})",
     "or pairs: [[token or text, bias], ...], false to forbid"},
    {"seed", integer(), Support::kSupported, "1", "-1: a random one"},
    {"stop", text_or_texts(64), Support::kSupported, R"(["x"])", "up to 64 strings, of 64 KiB together"},
    {"stop_token_ids", token_ids(), Support::kSupported, "[5]", ""},
    {"include_stop_str_in_output", boolean(), Support::kSupported, "true", ""},
    {"ignore_eos", boolean(), Support::kSupported, "true", ""},
    {"min_tokens", integer(0, kMostInt32), Support::kSupported, "1", ""},
    {"bad_words", texts(1024), Support::kSupported, R"(["x"])", ""},
    {"allowed_token_ids", token_ids(), Support::kSupported, "[97]", ""},
    {"skip_special_tokens", boolean(), Support::kSupported, "true", ""},
    {"spaces_between_special_tokens", only("[true]"), Support::kRefused, "false",
     "texts are decoded as the tokenizer defines"},
    {"truncate_prompt_tokens", integer(-1, kMostInt32), Support::kSupported, "8", "keeps the last tokens"},
    {"stream", boolean(), Support::kSupported, "true", ""},
    {"sse_ping_interval", integer(-1, 86400), Support::kSupported, "10",
     "seconds without an event until a comment line, on streams of events; 0 and less: none; absent: "
     "server.timeout.ping"},
    {"priority", integer(-kMostInt32, kMostInt32), Support::kSupported, "1", ""},
    {"cache_salt", text(), Support::kSupported, R"("s")", "up to 1,024 bytes"},
    {"timeout", number(0.001, 86400), Support::kSupported, "60", "seconds; then the request is cut"},
    {"speculative_config", one_of("object|string"), Support::kSupported,
     R"({"method":"ngram","num_speculative_tokens":4})",
     "ngram (prompt_lookup), mtp where the server drafts so, draft (draft_model) where it has one, or none, or the "
     "text off; absent: as the server is configured. No token of the answer depends on it"},
    {"structured_outputs", object(), Support::kSupported, R"({"regex":"a+"})",
     "json, regex, choice, grammar, json_object, structural_tag; disable_any_whitespace: JSON without white space"},
    {"guided_json", one_of("object|string|boolean"), Support::kSupported, R"({"type":"object"})", ""},
    {"guided_regex", text(), Support::kSupported, R"("a+")", ""},
    {"guided_choice", texts(4096), Support::kSupported, R"(["a"])", ""},
    {"guided_grammar", text(), Support::kSupported, R"("root ::= \"a\"")", ""},
    {"guided_json_object", boolean(), Support::kSupported, "true", ""},
    {"grammar", text(), Support::kSupported, R"("root ::= \"a\"")", "GBNF, as llama-server's"},
    {"json_schema", one_of("object|string|boolean"), Support::kSupported, R"({"type":"object"})", "as llama-server's"},
    {"truncation_side", words("left|right"), Support::kSupported, R"("right")",
     "what truncate_prompt_tokens takes away: the prompt's beginning (left) or its end"},
    {"regex", text(), Support::kSupported, R"("a+")", "SGLang's name"},
    {"ebnf", text(), Support::kSupported, R"("root ::= \"a\"")", "SGLang's name"},
    {"lora", array(), Support::kSupported, "[]",
     "llama-server's way to ask for an adapter: [{\"id\": ID, \"scale\": 1}], ID as in /lora-adapters; or its name as "
     "the "
     "model"},
    {"use_beam_search", only("[false]"), Support::kRefused, "true", "only sampling is served"},
    {"length_penalty", only("[1]"), Support::kRefused, "2", "it belongs to beam search"},
    {"logits_processors", only("[]"), Support::kRefused, R"(["x"])", "code in requests is not run"},
    {"guided_whitespace_pattern", only("[]"), Support::kRefused, R"("x")",
     "runs of white space in JSON are bounded by engine.json_whitespace"},
    {"vllm_xargs", only("[]"), Support::kRefused, R"({"a":1})", ""},
    {"ec_transfer_params", only("[]"), Support::kRefused, "{}", "disaggregated serving is not available"},
    {"prompt_embeds", only("[]"), Support::kRefused, R"("AAAA")", "prompts are texts or token ids"},
    {"multimodal_data", only("[]"), Support::kRefused, R"(["x"])", "only text is served"},
    {"repetition_detection", only("[]"), Support::kRefused, R"({"max_pattern_size":2})", ""},
    {"logprob_token_ids", only("[]"), Support::kRefused, "[1]", "log probabilities are those of the likeliest tokens"},
    {"watermarking", only("[false]"), Support::kRefused, "true", ""},
    {"stream_interval", only("[1]"), Support::kRefused, "5", "every token is sent as it comes"},
    {"return_prompt_text", only("[false]"), Support::kRefused, "true", "/apply-template shows it"},
    {"n_indent", only("[0]"), Support::kRefused, "1", ""},
    {"t_max_predict_ms", only("[0]"), Support::kRefused, "5", "use timeout"},
    {"post_sampling_probs", only("[false]"), Support::kRefused, "true", ""},
    {"n_probs", only("[0]"), Support::kRefused, "1", "use logprobs"},
    {"return_tokens", only("[false]"), Support::kRefused, "true", "use return_token_ids"},
    {"timings_per_token", only("[false]"), Support::kRefused, "true", "only /completion has it"},
    {"response_fields", only("[[]]"), Support::kRefused, R"(["x"])", "only /completion has it"},
    {"add_special_tokens", boolean(), Support::kSupported, "false", ""},
    {"user", text(), Support::kAccepted, R"("u")", "accepted; nothing depends on it"},
};

constexpr std::string_view kChoicePaths[] = {"/v1/completions", "/v1/chat/completions"};
constexpr FieldRow kChoiceRows[] = {
    {"return_progress", boolean(), Support::kSupported, "true",
     "with stream: chunks with prompt_progress (total, cache, processed, time_ms) while the prompt is computed"},
    {"stream_options", object(), Support::kConditional, R"({"include_usage":true})",
     "with stream: include_usage, continuous_usage_stats; include_obfuscation is refused"},
    {"max_tokens", integer(0, kMostInt32), Support::kSupported, "5", "an upper bound; the context's end is another"},
    {"n", integer(1, 128), Support::kSupported, "2", ""},
    {"prompt_logprobs", integer(0, 20), Support::kSupported, "1", "not with stream; tokens x (1 + this) up to 262144"},
    {"return_token_ids", boolean(), Support::kSupported, "true", "with the token that ended the text, as vLLM"},
    {"return_tokens_as_token_ids", boolean(), Support::kSupported, "true", ""},
    {"request_id", text(), Support::kSupported, R"("r")", "the response's id ends with it"},
    {"response_format", object(), Support::kSupported, R"({"type":"json_object"})",
     "text, json_object, json_schema, structural_tag"},
    {"kv_transfer_params", object(), Support::kSupported, R"({"do_remote_decode":true})",
     "prefill apart from decode, as vLLM's: do_remote_decode computes the prompt, waits until the shared store has its "
     "blocks and answers the parameters with which do_remote_prefill takes them over at another replica"},
    {"n_predict", integer(-2, kMostInt32), Support::kSupported, "5",
     "llama-server's name for max_tokens; -1: to the context's end"},
};

}  // namespace

const FieldTable kGenerationFields{"Fields of every generation", "", kGenerationPaths, kGenerationRows};
const FieldTable kChoiceFields{"Fields of completions and chats", "", kChoicePaths, kChoiceRows};

}  // namespace quire::reference
