// Router: which path answers which methods, and how. Immutable; any thread.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "server/api/batches/files.h"
#include "server/api/common/model_table.h"
#include "server/api/common/operation.h"
#include "server/http/response.h"
#include "server/http/server_state.h"

namespace quire {

// Asks one model, which is ready; on a text thread.
using ModelEndpoint = Result<std::unique_ptr<Operation>> (*)(ModelCall& asked, const Call& call);
// Tells of the models and of what is stored in memory; on a text thread.
using ListEndpoint = Result<std::unique_ptr<Operation>> (*)(const ModelTable& models, const Call& call);
// Reads or changes stored files and batches; on the batch thread.
using StoredEndpoint = Result<StoredAnswer> (*)(BatchStore& store, const Call& call);
// A file in a form, which is stored as it arrives.
struct FileUploadRoute {};
// Answers about the server itself, from its state alone, whatever the phase.
using StateHandler = Response (*)(ServerState& state);
// The same, with what only holders of a key may see.
using MetricsHandler = Response (*)(ServerState& state, bool sees_keys);
// A file of the web page.
using PageHandler = Response (*)(const RequestHead& head);
// Tells the server to do something; on a text thread.
using AdminHandler = Result<AdminTask> (*)(ServerState& state, const Call& call);

// Who may ask. kKey: holders of an API key, where there are keys at all. kMetrics: as security.metrics says.
enum class Access { kOpen, kKey, kMetrics, kAdmin };

struct Route {
  std::string_view path;    // a trailing '*' stands for any non-empty rest
  std::string_view method;  // GET implies HEAD
  std::variant<ModelEndpoint, ListEndpoint, StoredEndpoint, FileUploadRoute, StateHandler, MetricsHandler, PageHandler,
               AdminHandler>
      answer;
  Access access = Access::kKey;
  bool is_queued = true;  // where it asks a model: it computes there, so it needs a place in the model's queue

  // One of the API's, not a page about the server.
  constexpr bool is_api() const {
    return std::holds_alternative<ModelEndpoint>(answer) || std::holds_alternative<ListEndpoint>(answer) || is_stored();
  }
  // Of files and batches.
  constexpr bool is_stored() const { return std::holds_alternative<StoredEndpoint>(answer) || takes_form(); }
  constexpr bool takes_form() const { return std::holds_alternative<FileUploadRoute>(answer); }
};

struct RouteMatch {
  const Route* route = nullptr;  // null: see status
  int status = 200;              // 404 or 405
  std::string allow;             // with 405, and for OPTIONS
};

std::span<const Route> routes();
RouteMatch find_route(std::string_view method, std::string_view path);

// What a call of the API becomes: something to do or, where its model is not ready, the name of that.
using ReadCall = std::variant<std::unique_ptr<Operation>, AsleepModel>;
// Reads the call's body. `route` is one of the API's. The error's code is WorkLimit::kCode where `limit` was reached.
Result<ReadCall> read_call(const Route& route, const ModelTable& models, const Call& call, const WorkLimit& limit);

}  // namespace quire
