// The fields of calls that administrate models, adapters and slots. Immutable; any thread.
#pragma once

#include "server/api/fields/field.h"

namespace quire::fields {

namespace admin {

inline constexpr Field kName{"name", text(), R"("other")", "the model's name; absent: the first model"};
inline constexpr Field kModel{"model", text(), R"("other")", "llama-server's alias of name"};
inline constexpr Field kWait{"wait", boolean(), "false", "false: 202 at once; true (default): waits for the end"};
inline constexpr Field kPath{"path", text(), R"("/models/other.gguf")",
                             "in server.model_root, or in a configured model's folder"};
inline constexpr Field kHf{"hf", text(), R"("owner/name:Q8_0")", "a downloaded model, instead of path"};
inline constexpr Field kPreload{"preload", boolean(), "false", "false: the model's first request loads it"};
inline constexpr Field kAliases{"aliases", text_or_texts(64), R"(["o"])"};
inline constexpr Field kChatTemplate{"chat_template", text(), R"("/models/other.jinja")", "a file"};
inline constexpr Field kToolFormat{"tool_format", text(), R"("hermes")"};
inline constexpr Field kPackedCache{"packed_cache", text(), R"("/models/packed")", "a folder"};
inline constexpr Field kMaxModelLen{"max_model_len", integer(0, kMostInt32), "4096"};
inline constexpr Field kMaxNumSeqs{"max_num_seqs", integer(1, kMostInt32), "8"};
inline constexpr Field kKvDtype{"kv_dtype", text(), R"("f16")", "as kv_cache.dtype"};
inline constexpr Field kKvMemory{"kv_memory", integer(1, 1125899906842624), "1073741824", "bytes"};
inline constexpr Field kSleepAfter{"sleep_after", number(0, 1e8), "600", "seconds without a request; 0: never"};
inline constexpr Field kMaxQueuedRequests{"max_queued_requests", integer(1, kMostInt32), "64"};
inline constexpr Field kMaxQueueTime{"max_queue_time", number(0, 1e8), "30", "seconds"};
inline constexpr Field kMode{"mode", words("beside|in_place"), R"("in_place")",
                             "beside (default): loads before the old file is unloaded; in_place: afterwards"};
inline constexpr Field kShare{"share", number(0, 1), "0.1",
                              "share of the model's conversations for the canary NAME@canary; not with in_place"};
inline constexpr Field kLoraName{"lora_name", text(), R"("sql")",
                                 "required; the name that requests give as their model"};
inline constexpr Field kLoraPath{"lora_path", text(), R"("/models/sql.gguf")",
                                 "required; a GGUF adapter or a PEFT directory in server.model_root, or in a "
                                 "configured model's or adapter's folder"};
inline constexpr Field kLoadInplace{"load_inplace", boolean(), "true",
                                    "true: replaces the adapter of this name; running requests keep the old one"};
inline constexpr Field kLoraIntId{"lora_int_id", integer(0, kMostInt32), "1",
                                  "vLLM's; ignored, lora_name selects the adapter"};
inline constexpr Field kStream{"stream", boolean(), "true", "true: progress as server-sent events"};
inline constexpr Field kLoad{"load", boolean(), "true", "true: serves the model after the download"};
inline constexpr Field kServedName{"served_name", text(), R"("mine")", "with load: the name to serve it under"};
inline constexpr Field kFilename{
    "filename", text(), R"("agent-1")",
    "for save and restore: a file name in server.slots.directory, of letters, digits, - _ and ."};

}  // namespace admin

extern const FieldTable kLoadFields;
extern const FieldTable kReplaceFields;
extern const FieldTable kLoadAdapterFields;
extern const FieldTable kUnloadAdapterFields;
extern const FieldTable kPullFields;
extern const FieldTable kRemoveFields;
extern const FieldTable kModelNameFields;
extern const FieldTable kSlotFields;

}  // namespace quire::fields
