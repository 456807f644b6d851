#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr std::string_view kLoadPaths[] = {"/admin/models/load"};
constexpr FieldRow kLoadRows[] = {
    {"name", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
    {"model", text(), Support::kSupported, R"("other")", "llama-server's alias of name"},
    {"wait", boolean(), Support::kSupported, "false", "false: 202 at once; true (default): waits for the end"},
    {"path", text(), Support::kSupported, R"("/models/other.gguf")",
     "in server.model_root, or in a configured model's folder"},
    {"hf", text(), Support::kSupported, R"("owner/name:Q8_0")", "a downloaded model, instead of path"},
    {"preload", boolean(), Support::kSupported, "false", "false: the model's first request loads it"},
    {"aliases", text_or_texts(64), Support::kSupported, R"(["o"])", ""},
    {"chat_template", text(), Support::kSupported, R"("/models/other.jinja")", "a file"},
    {"tool_format", text(), Support::kSupported, R"("hermes")", ""},
    {"packed_cache", text(), Support::kSupported, R"("/models/packed")", "a folder"},
    {"max_model_len", integer(0, kMostInt32), Support::kSupported, "4096", ""},
    {"max_num_seqs", integer(1, kMostInt32), Support::kSupported, "8", ""},
    {"kv_dtype", text(), Support::kSupported, R"("f16")", "as kv_cache.dtype"},
    {"kv_memory", integer(1, 1125899906842624), Support::kSupported, "1073741824", "bytes"},
    {"sleep_after", number(0, 1e8), Support::kSupported, "600", "seconds without a request; 0: never"},
    {"max_queued_requests", integer(1, kMostInt32), Support::kSupported, "64", ""},
    {"max_queue_time", number(0, 1e8), Support::kSupported, "30", "seconds"},
};

constexpr std::string_view kReplacePaths[] = {"/admin/models/replace"};
constexpr FieldRow kReplaceRows[] = {
    {"name", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
    {"model", text(), Support::kSupported, R"("other")", "llama-server's alias of name"},
    {"wait", boolean(), Support::kSupported, "false", "false: 202 at once; true (default): waits for the end"},
    {"path", text(), Support::kSupported, R"("/models/newer.gguf")", "the new file"},
    {"mode", words("beside|in_place"), Support::kSupported, R"("in_place")",
     "beside (default): loads before the old file is unloaded; in_place: afterwards"},
    {"share", number(0, 1), Support::kSupported, "0.1",
     "share of the model's conversations for the canary NAME@canary; not with in_place"},
};

constexpr std::string_view kLoadAdapterPaths[] = {"/v1/load_lora_adapter"};
constexpr FieldRow kLoadAdapterRows[] = {
    {"lora_name", text(), Support::kSupported, R"("sql")", "required; the name that requests give as their model"},
    {"lora_path", text(), Support::kSupported, R"("/models/sql.gguf")",
     "required; a GGUF adapter or a PEFT directory in server.model_root, or in a configured model's or adapter's "
     "folder"},
    {"load_inplace", boolean(), Support::kSupported, "true",
     "true: replaces the adapter of this name; running requests keep the old one"},
    {"model", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
};

constexpr std::string_view kUnloadAdapterPaths[] = {"/v1/unload_lora_adapter"};
constexpr FieldRow kUnloadAdapterRows[] = {
    {"lora_name", text(), Support::kSupported, R"("sql")", "required"},
    {"lora_int_id", integer(0, kMostInt32), Support::kSupported, "1", "vLLM's; ignored, lora_name selects the adapter"},
};

constexpr std::string_view kPullPaths[] = {"/admin/models/pull"};
constexpr FieldRow kPullRows[] = {
    {"model", text(), Support::kSupported, R"("owner/name:Q8_0")", "OWNER/NAME[@REVISION][:QUANT]; required"},
    {"name", text(), Support::kSupported, R"("owner/name:Q8_0")", "Ollama's alias of model"},
    {"stream", boolean(), Support::kSupported, "true", "true: progress as server-sent events"},
    {"load", boolean(), Support::kSupported, "true", "true: serves the model after the download"},
    {"served_name", text(), Support::kSupported, R"("mine")", "with load: the name to serve it under"},
    {"wait", boolean(), Support::kSupported, "false", "false: 202 at once; not with stream or load"},
};

constexpr std::string_view kRemovePaths[] = {"/admin/models/remove"};
constexpr FieldRow kRemoveRows[] = {
    {"model", text(), Support::kSupported, R"("owner/name")", "OWNER/NAME[@REVISION][:QUANT]; required"},
    {"name", text(), Support::kSupported, R"("owner/name")", "Ollama's alias of model"},
};

constexpr std::string_view kSlotPaths[] = {"/slots/{id}"};
constexpr FieldRow kSlotRows[] = {
    {"filename", text(), Support::kSupported, R"("agent-1")",
     "for save and restore: a file name in server.slots.directory, of letters, digits, - _ and ."},
    {"model", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
};

constexpr std::string_view kBatchPaths[] = {"/v1/batches"};
constexpr FieldRow kBatchRows[] = {
    {"input_file_id", text(), Support::kSupported, R"("file-1")", "required; a file of purpose batch"},
    {"endpoint", words("/v1/chat/completions|/v1/completions|/v1/embeddings|/v1/responses"), Support::kSupported,
     R"("/v1/chat/completions")", "required"},
    {"completion_window", text(), Support::kSupported, R"("24h")",
     "required; 24h, or another number of minutes (m), hours (h) or days (d) up to 30d"},
    {"metadata", object(), Support::kSupported, R"({"a":"b"})", "up to 16 string values, 64 KiB in total"},
    {"output_expires_after", object(), Support::kSupported, R"({"anchor":"created_at","seconds":3600})",
     "when the batch's output files expire"},
};

constexpr std::string_view kModelNamePaths[] = {"/admin/models/unload", "/admin/models/sleep", "/admin/models/wake"};
constexpr FieldRow kModelNameRows[] = {
    {"name", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
    {"model", text(), Support::kSupported, R"("other")", "llama-server's alias of name"},
    {"wait", boolean(), Support::kSupported, "false", "false: 202 at once; true (default): waits for the end"},
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
