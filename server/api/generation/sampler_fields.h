// The fields whose values are members of SamplingParams, and `samplers`, the order in which samplers are applied.
// Pure functions; any thread. Source: llama.cpp, tools/server/README.md, "POST /completion".
#pragma once

#include <span>

#include "core/request/sampling_params.h"
#include "server/api/common/field_reader.h"

namespace quire {

// Reads the fields of fields::kFilterRows and kPenaltyRows into the members that the rows name. Errors stay in the
// reader.
void read_samplers(FieldReader& reader, SamplingParams& sampling);
// Call after all other sampling fields: samplers that `samplers` does not list are turned off.
void read_sampler_order(FieldReader& reader, SamplingParams& sampling);
// Adds the values of such rows by their names.
void add_settings(const SamplingParams& sampling, std::span<const fields::Field> rows, Json& settings);
// The samplers that are in force, by llama.cpp's names.
Json sampler_names(const SamplingParams& sampling);

}  // namespace quire
