// The fields of llama.cpp's samplers beyond the common filters, and `samplers`, the order in which all are applied.
// Pure functions; any thread. Source: llama.cpp, tools/server/README.md, "POST /completion".
#pragma once

#include "core/request/sampling_params.h"
#include "server/api/common/field_reader.h"

namespace quire {

// top_n_sigma, min_keep, dynamic temperature, mirostat, adaptive-p. Errors stay in the reader.
void read_llama_samplers(FieldReader& reader, SamplingParams& sampling);
// Call after all other sampling fields: samplers that `samplers` does not list are turned off.
void read_sampler_order(FieldReader& reader, SamplingParams& sampling);
// The samplers that are in force, by llama.cpp's names.
Json sampler_names(const SamplingParams& sampling);

}  // namespace quire
