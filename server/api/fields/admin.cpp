#include "server/api/fields/admin.h"

namespace quire::fields {

namespace {

constexpr Field kModelOrFirst{"model", text(), R"("other")", "the model's name; absent: the first model"};

constexpr Field kLoadRows[] = {
    admin::kName,         admin::kModel,       admin::kWait,        admin::kPath,
    admin::kHf,           admin::kPreload,     admin::kAliases,     admin::kChatTemplate,
    admin::kToolFormat,   admin::kPackedCache, admin::kMaxModelLen, admin::kMaxNumSeqs,
    admin::kKvDtype,      admin::kKvMemory,    admin::kSleepAfter,  admin::kMaxQueuedRequests,
    admin::kMaxQueueTime,
};

constexpr Field kReplaceRows[] = {
    admin::kName, admin::kModel, admin::kWait, {"path", text(), R"("/models/newer.gguf")", "the new file"},
    admin::kMode, admin::kShare,
};

constexpr Field kLoadAdapterRows[] = {
    admin::kLoraName,
    admin::kLoraPath,
    admin::kLoadInplace,
    kModelOrFirst,
};

constexpr Field kUnloadAdapterRows[] = {
    {"lora_name", text(), R"("sql")", "required"},
    admin::kLoraIntId,
};

constexpr Field kPullRows[] = {
    {"model", text(), R"("owner/name:Q8_0")", "OWNER/NAME[@REVISION][:QUANT]; required"},
    {"name", text(), R"("owner/name:Q8_0")", "Ollama's alias of model"},
    admin::kStream,
    admin::kLoad,
    admin::kServedName,
    {"wait", boolean(), "false", "false: 202 at once; not with stream or load"},
};

constexpr Field kRemoveRows[] = {
    {"model", text(), R"("owner/name")", "OWNER/NAME[@REVISION][:QUANT]; required"},
    {"name", text(), R"("owner/name")", "Ollama's alias of model"},
};

constexpr Field kModelNameRows[] = {
    admin::kName,
    admin::kModel,
    admin::kWait,
};

constexpr Field kSlotRows[] = {
    admin::kFilename,
    kModelOrFirst,
};

}  // namespace

const FieldTable kLoadFields{"Loading a model", "", "/admin/models/load", kLoadRows};
const FieldTable kReplaceFields{"Replacing a model", "", "/admin/models/replace", kReplaceRows};
const FieldTable kLoadAdapterFields{"Loading an adapter", "", "/v1/load_lora_adapter", kLoadAdapterRows};
const FieldTable kUnloadAdapterFields{"Unloading an adapter", "", "/v1/unload_lora_adapter", kUnloadAdapterRows};
const FieldTable kPullFields{"Downloading a model", "", "/admin/models/pull", kPullRows};
const FieldTable kRemoveFields{"Deleting a download", "", "/admin/models/remove", kRemoveRows};
const FieldTable kModelNameFields{"Unloading, sleep and waking", "",
                                  "/admin/models/unload, /admin/models/sleep, /admin/models/wake", kModelNameRows};
const FieldTable kSlotFields{"Saved slots", "", "/slots/{id}", kSlotRows};

}  // namespace quire::fields
