#include "server/api/reference/tables.h"

namespace quire::reference {

namespace {

constexpr const FieldTable* const kLoadBody[] = {&kLoadFields};
constexpr const FieldTable* const kReplaceBody[] = {&kReplaceFields};
constexpr const FieldTable* const kModelNameBody[] = {&kModelNameFields};

constexpr OperationRow kServerRows[] = {
    {.method = "GET",
     .paths = "/livez",
     .text = "alive unless only a restart helps",
     .tag = "Server",
     .members = "status",
     .audience = Audience::kOpen},
    {.method = "GET",
     .paths = "/readyz, /health, /ping",
     .text = "ready unless no model can serve",
     .tag = "Server",
     .members = "status",
     .audience = Audience::kOpen},
    {.method = "GET",
     .paths = "/startupz",
     .text = "whether the models are loaded",
     .tag = "Server",
     .members = "status",
     .audience = Audience::kOpen},
    {.method = "GET",
     .paths = "/metrics",
     .text = "Prometheus text with vLLM's names",
     .tag = "Server",
     .answer = AnswerForm::kText,
     .audience = Audience::kMetrics},
    {.method = "GET",
     .paths = "/version",
     .text = "the version",
     .tag = "Server",
     .members = "version",
     .audience = Audience::kOpen},
    {.method = "GET",
     .paths = "/openapi.json",
     .text = "this reference as an OpenAPI 3.1 document",
     .tag = "Server",
     .members = "openapi, info, paths, components",
     .audience = Audience::kOpen},
    {.method = "GET",
     .paths = "/status",
     .text =
         "what the page's status view draws, as JSON: per model the pool, its sequences, the last steps by phase, and "
         "a quarter of an hour of rates and latencies, a point a second; access as `/metrics`, keys are named to "
         "holders of a key only",
     .tag = "Server",
     .members = "time, version, models",
     .audience = Audience::kMetrics},
    {.method = "GET",
     .paths = "/admin/models",
     .text = "every model: state, file, memory that it is promised, requests; why it failed",
     .tag = "Admin",
     .members = "object, data",
     .audience = Audience::kAdmin},
    {.method = "POST",
     .paths = "/admin/models/load, /models/load",
     .text = "takes a model into service, or back",
     .tag = "Admin",
     .body = kLoadBody,
     .members = "name, state, success",
     .audience = Audience::kAdmin},
    {.method = "POST",
     .paths = "/admin/models/unload, /models/unload",
     .text = "takes a model out of service after its last request; a load that is under way is given up",
     .tag = "Admin",
     .body = kModelNameBody,
     .members = "name, state, success",
     .audience = Audience::kAdmin},
    {.method = "POST",
     .paths = "/admin/models/sleep, /sleep",
     .text = "gives a model's memory back after its last request, until a request or wake; a load that is under way is "
             "given up where no request waits for it",
     .tag = "Admin",
     .body = kModelNameBody,
     .members = "name, state, success",
     .audience = Audience::kAdmin},
    {.method = "POST",
     .paths = "/admin/models/wake, /wake_up",
     .text = "loads a sleeping model",
     .tag = "Admin",
     .body = kModelNameBody,
     .members = "name, state, success",
     .audience = Audience::kAdmin},
    {.method = "POST",
     .paths = "/admin/models/replace",
     .text =
         "another file under the same name; with `share` (0 to 1) the file becomes the canary `NAME@canary` and gets "
         "this share of the model's conversations, a later call without `path` changes it, 0 takes it out again, 1 "
         "makes it the model",
     .tag = "Admin",
     .body = kReplaceBody,
     .members = "name, state, success",
     .audience = Audience::kAdmin},
    {.method = "GET",
     .paths = "/is_sleeping",
     .text = "as vLLM has it: asleep is a server none of whose models is ready",
     .tag = "Admin",
     .members = "is_sleeping",
     .audience = Audience::kAdmin},
    {.method = "POST",
     .paths = "/admin/reload",
     .text = "the configuration read again",
     .tag = "Admin",
     .audience = Audience::kAdmin},
    {.method = "POST",
     .paths = "/admin/trace",
     .text = "the steps of all ready models' engines during so many seconds, for Perfetto",
     .tag = "Admin",
     .query = "seconds",
     .audience = Audience::kAdmin},
};

}  // namespace

const std::span<const OperationRow> kServerOperations = kServerRows;

}  // namespace quire::reference
