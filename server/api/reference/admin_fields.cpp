#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kLoadPaths[] = {"/admin/models/load"};
constexpr FieldRow kLoadRows[] = {
    {"name", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
    {"model", text(), Support::kSupported, R"("other")", "llama-server's name for name"},
    {"wait", boolean(), Support::kSupported, "false", "false: a 202 at once; else the answer is sent when it is done"},
    {"path", text(), Support::kSupported, R"("/models/other.gguf")",
     "in server.model_root, or in a configured model's folder"},
    {"hf", text(), Support::kSupported, R"("owner/name:Q8_0")", "a downloaded model, in the place of path"},
    {"preload", boolean(), Support::kSupported, "false", "false: its first request loads it"},
    {"aliases", text_or_texts(64), Support::kSupported, R"(["o"])", ""},
    {"chat_template", text(), Support::kSupported, R"("/models/other.jinja")", "a file"},
    {"tool_format", text(), Support::kSupported, R"("hermes")", ""},
    {"packed_cache", text(), Support::kSupported, R"("/models/packed")", "a folder"},
    {"max_model_len", integer(0, kMostInt32), Support::kSupported, "4096", ""},
    {"max_num_seqs", integer(1, kMostInt32), Support::kSupported, "8", ""},
    {"kv_dtype", text(), Support::kSupported, R"("f16")", "as kv_cache.dtype"},
    {"kv_memory", integer(1, 1125899906842624), Support::kSupported, "1073741824", "bytes"},
    {"sleep_after", number(0, 1e8), Support::kSupported, "600", "seconds without a request"},
    {"max_queued_requests", integer(1, kMostInt32), Support::kSupported, "64", ""},
    {"max_queue_time", number(0, 1e8), Support::kSupported, "30", "seconds"},
};

constexpr std::string_view kReplacePaths[] = {"/admin/models/replace"};
constexpr FieldRow kReplaceRows[] = {
    {"name", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
    {"model", text(), Support::kSupported, R"("other")", "llama-server's name for name"},
    {"wait", boolean(), Support::kSupported, "false", "false: a 202 at once; else the answer is sent when it is done"},
    {"path", text(), Support::kSupported, R"("/models/newer.gguf")", "the file that takes the name"},
    {"mode", words("beside|in_place"), Support::kSupported, R"("in_place")", "beside is the default"},
    {"share", number(0, 1), Support::kSupported, "0.1", "of the model's conversations, for the canary NAME@canary"},
};

constexpr std::string_view kLoadAdapterPaths[] = {"/v1/load_lora_adapter"};
constexpr FieldRow kLoadAdapterRows[] = {
    {"lora_name", text(), Support::kSupported, R"("sql")", "required; the name that requests ask for as their model"},
    {"lora_path", text(), Support::kSupported, R"("/models/sql.gguf")",
     "required; a GGUF adapter or a PEFT directory in server.model_root, or in a configured model's or adapter's "
     "folder"},
    {"load_inplace", boolean(), Support::kSupported, "true",
     "the adapter takes the place of the one of its name, which running requests keep"},
    {"model", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
};

constexpr std::string_view kUnloadAdapterPaths[] = {"/v1/unload_lora_adapter"};
constexpr FieldRow kUnloadAdapterRows[] = {
    {"lora_name", text(), Support::kSupported, R"("sql")", "required"},
    {"lora_int_id", integer(0, kMostInt32), Support::kSupported, "1", "vLLM's; the name alone says which"},
};

constexpr std::string_view kPullPaths[] = {"/admin/models/pull"};
constexpr FieldRow kPullRows[] = {
    {"model", text(), Support::kSupported, R"("owner/name:Q8_0")", "OWNER/NAME[@REVISION][:QUANT]; required"},
    {"stream", boolean(), Support::kSupported, "true", "events"},
    {"load", boolean(), Support::kSupported, "true", "served from then on"},
    {"served_name", text(), Support::kSupported, R"("mine")", "its name, with load"},
    {"wait", boolean(), Support::kSupported, "false", "false: a 202 at once"},
};

constexpr std::string_view kRemovePaths[] = {"/admin/models/remove"};
constexpr FieldRow kRemoveRows[] = {
    {"model", text(), Support::kSupported, R"("owner/name")", "OWNER/NAME[@REVISION][:QUANT]; required"},
};

constexpr std::string_view kSlotPaths[] = {"/slots/{id}"};
constexpr FieldRow kSlotRows[] = {
    {"filename", text(), Support::kSupported, R"("agent-1")",
     "to save and restore; letters, digits, - _ and . of a file in server.slots.directory"},
    {"model", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
};

constexpr std::string_view kBatchPaths[] = {"/v1/batches"};
constexpr FieldRow kBatchRows[] = {
    {"input_file_id", text(), Support::kSupported, R"("file-1")", "required; a file of purpose batch"},
    {"endpoint", words("/v1/chat/completions|/v1/completions|/v1/embeddings|/v1/responses"), Support::kSupported,
     R"("/v1/chat/completions")", "required"},
    {"completion_window", text(), Support::kSupported, R"("24h")",
     "required; or another number of minutes, hours or days up to 30d"},
    {"metadata", object(), Support::kSupported, R"({"a":"b"})", "up to 16 texts, of 64 KiB together"},
    {"output_expires_after", object(), Support::kSupported, R"({"anchor":"created_at","seconds":3600})",
     "of the files that it makes"},
};

constexpr std::string_view kModelNamePaths[] = {"/admin/models/unload", "/admin/models/sleep", "/admin/models/wake"};
constexpr FieldRow kModelNameRows[] = {
    {"name", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
    {"model", text(), Support::kSupported, R"("other")", "llama-server's name for name"},
    {"wait", boolean(), Support::kSupported, "false", "false: a 202 at once; else the answer is sent when it is done"},
};

}  // namespace

const FieldTable kLoadFields{"Loading a model", "", kLoadPaths, kLoadRows};
const FieldTable kReplaceFields{"Replacing a model", "", kReplacePaths, kReplaceRows};
const FieldTable kLoadAdapterFields{"Loading an adapter", "", kLoadAdapterPaths, kLoadAdapterRows};
const FieldTable kUnloadAdapterFields{"Unloading an adapter", "", kUnloadAdapterPaths, kUnloadAdapterRows};
const FieldTable kPullFields{"Downloading a model", "", kPullPaths, kPullRows};
const FieldTable kRemoveFields{"Deleting a download", "", kRemovePaths, kRemoveRows};
const FieldTable kSlotFields{"Saved slots", "", kSlotPaths, kSlotRows};
const FieldTable kBatchFields{"Batches", "", kBatchPaths, kBatchRows};
const FieldTable kModelNameFields{"Unloading, sleep and waking", "", kModelNamePaths, kModelNameRows};

}  // namespace quire::reference
