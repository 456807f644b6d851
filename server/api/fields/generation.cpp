#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kGenerationRest[] = {
    generation::kDrySequenceBreakers,
    generation::kLogitBias,
    generation::kSeed,
    generation::kStop,
    generation::kStopTokenIds,
    generation::kIncludeStopStrInOutput,
    generation::kIgnoreEos,
    generation::kMinTokens,
    generation::kBadWords,
    generation::kAllowedTokenIds,
    generation::kSkipSpecialTokens,
    refused("spaces_between_special_tokens", "false", "texts are decoded as the tokenizer defines", "[true]"),
    generation::kTruncatePromptTokens,
    generation::kStream,
    generation::kSsePingInterval,
    generation::kPriority,
    generation::kCacheSalt,
    generation::kTimeout,
    generation::kSpeculativeConfig,
    generation::kStructuredOutputs,
    generation::kGuidedJson,
    generation::kGuidedRegex,
    generation::kGuidedChoice,
    generation::kGuidedGrammar,
    generation::kGuidedJsonObject,
    generation::kGrammar,
    generation::kJsonSchema,
    generation::kTruncationSide,
    generation::kRegex,
    generation::kEbnf,
    generation::kLora,
    generation::kIdSlot,
    refused("use_beam_search", "true", "only sampling is served", "[false]"),
    refused("length_penalty", "2", "it belongs to beam search, which is not served", "[1]"),
    refused("logits_processors", R"(["x"])", "code in requests is not run"),
    generation::kGuidedWhitespacePattern,
    refused("vllm_xargs", R"({"a":1})", "code that would read it is not run"),
    refused("ec_transfer_params", "{}", "disaggregated serving is not available"),
    refused("prompt_embeds", R"("AAAA")", "prompts are texts or token ids"),
    generation::kMultimodalData,
    refused("repetition_detection", R"({"max_pattern_size":2})", "a text is not watched for repetitions"),
    refused("logprob_token_ids", "[1]", "log probabilities are those of the likeliest tokens"),
    refused("watermarking", "true", "texts are not marked", "[false]"),
    refused("stream_interval", "5", "every token is sent as it comes", "[1]"),
    refused("return_prompt_text", "true", "/apply-template shows it", "[false]"),
    generation::kNIndent,
    generation::kTMaxPredictMs,
    generation::kPostSamplingProbs,
    generation::kAddSpecialTokens,
    generation::kUser,
};
constexpr Field kModelRow[] = {generation::kModel};
constexpr Field kSamplerOrder[] = {generation::kSamplers};
constexpr auto kGenerationRows = joined(kModelRow, kFilterRows, kSamplerOrder, kPenaltyRows, kGenerationRest);

constexpr Field kNativeRows[] = {
    refused("n_probs", "1", "it is 'logprobs' here", "[0]"),
    refused("return_tokens", "true", "it is 'return_token_ids' here", "[false]"),
    refused("timings_per_token", "true", "only /completion has it", "[false]"),
    refused("response_fields", R"(["x"])", "only /completion has it", "[[]]"),
};

constexpr Field kChoiceRows[] = {
    generation::kReturnProgress,
    generation::kStreamOptions,
    generation::kMaxTokens,
    generation::kN,
    generation::kPromptLogprobs,
    generation::kReturnTokenIds,
    generation::kReturnTokensAsTokenIds,
    generation::kRequestId,
    generation::kResponseFormat,
    generation::kKvTransferParams,
    generation::kNPredict,
};

}  // namespace

const FieldTable kGenerationFields{"Fields of every generation", "",
                                   "/v1/completions, /v1/chat/completions, /v1/responses", kGenerationRows};
const FieldTable kNativeFields{"Fields of llama-server's completion only", "",
                               "/v1/completions, /v1/chat/completions, /v1/responses", kNativeRows};
const FieldTable kChoiceFields{"Fields of completions and chats", "", "/v1/completions, /v1/chat/completions",
                               kChoiceRows};

}  // namespace quire::fields
