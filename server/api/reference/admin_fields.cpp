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

constexpr std::string_view kModelNamePaths[] = {"/admin/models/unload", "/admin/models/sleep", "/admin/models/wake"};
constexpr FieldRow kModelNameRows[] = {
    {"name", text(), Support::kSupported, R"("other")", "the model's name; absent: the first model"},
    {"model", text(), Support::kSupported, R"("other")", "llama-server's name for name"},
    {"wait", boolean(), Support::kSupported, "false", "false: a 202 at once; else the answer is sent when it is done"},
};

}  // namespace

const FieldTable kLoadFields{"Loading a model", "", kLoadPaths, kLoadRows};
const FieldTable kReplaceFields{"Replacing a model", "", kReplacePaths, kReplaceRows};
const FieldTable kModelNameFields{"Unloading, sleep and waking", "", kModelNamePaths, kModelNameRows};

}  // namespace quire::reference
