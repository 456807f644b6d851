// Text as numbers: OpenAI's embeddings, vLLM's pooling (any output of a model, also one vector per token), classes and
// scores of pairs, and rerank as Cohere, Jina, Hugging Face's text-embeddings-inference, vLLM and llama-server have it.
// Pure functions from a body to an operation; any thread.
#pragma once

#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"

namespace quire {

Result<std::unique_ptr<Operation>> parse_embeddings(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> parse_pooling(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> parse_classify(ModelCall& asked, const Call& call);

Result<std::unique_ptr<Operation>> parse_rerank(ModelCall& asked, const Call& call);
Result<std::unique_ptr<Operation>> parse_score(ModelCall& asked, const Call& call);

}  // namespace quire
