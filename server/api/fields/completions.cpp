#include "server/api/fields/completions.h"

#include "server/api/fields/generation.h"

namespace quire::fields {

namespace {

constexpr Field kCompletionRows[] = {
    completions::kParseSpecial, completions::kPrompt, completions::kEcho,
    completions::kLogprobs,     completions::kBestOf, completions::kSuffix,
};

constexpr Field kTokenGenerationRows[] = {
    generation::kModel,      completions::kTokenIds,      completions::kSamplingParams,
    completions::kStream,    completions::kStreamOptions, completions::kRequestId,
    completions::kCacheSalt, completions::kPriority,      generation::kKvTransferParams,
};

}  // namespace

const FieldTable kCompletionFields{"Completions", "", "/v1/completions", kCompletionRows};
const FieldTable kTokenGenerationFields{"vLLM's generation from token ids", "", "/inference/v1/generate",
                                        kTokenGenerationRows};

}  // namespace quire::fields
