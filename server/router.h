// Router: the table of paths, methods and their handlers. Immutable; any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "core/base/result.h"
#include "server/modules/modules.h"

namespace quire {

struct AdminTask;
struct Call;
struct ModelCall;
struct ReportReader;
struct RequestHead;
struct Response;
struct ServerState;
struct StoredAnswer;
class BatchStore;
class ModelTable;
class Operation;

// Makes an operation of one model, which is ready; on a text thread.
using ModelEndpoint = Result<std::unique_ptr<Operation>> (*)(ModelCall& asked, const Call& call);
// Lists models, or objects stored in memory; on a text thread.
using ListEndpoint = Result<std::unique_ptr<Operation>> (*)(const ModelTable& models, const Call& call);
// Reads or changes stored files and batches; on the batch thread.
using StoredEndpoint = Result<StoredAnswer> (*)(BatchStore& store, const Call& call);
// A file in a form, stored as it arrives.
struct FileUploadRoute {};
// The Responses API over a WebSocket.
struct SocketRoute {};
// Answers about the server from its state alone, in any phase: a few words, on the io thread.
using StateHandler = Response (*)(ServerState& state);
// A longer report about the server; on the reports thread.
using ReportHandler = Response (*)(ServerState& state, const ReportReader& reader);
// A file of the web page; on the reports thread. Module: `page`.
using PageHandler = Response (*)(const RequestHead& head);
// An admin's operation; on the admin thread.
using AdminHandler = Result<AdminTask> (*)(ServerState& state, const Call& call);
// Nothing: the build leaves out the module that answers.
struct LeftOut {
  Module module;
};

// kKey: requires an API key, if keys are configured. kMetrics: set by security.metrics.
enum class Access { kOpen, kKey, kMetrics, kAdmin };

struct Route {
  std::string_view path;    // a trailing '*' stands for any non-empty rest
  std::string_view method;  // GET implies HEAD
  std::variant<ModelEndpoint, ListEndpoint, StoredEndpoint, FileUploadRoute, StateHandler, ReportHandler, PageHandler,
               AdminHandler, SocketRoute, LeftOut>
      answer;
  Access access = Access::kKey;
  bool is_queued = true;   // a model's endpoint: it computes, so it needs a place in the model's queue
  bool is_counted = true;  // counts against quotas; false: lists models or ends counted work

  // An endpoint of the API, as opposed to one about the server itself.
  constexpr bool is_api() const {
    return std::holds_alternative<ModelEndpoint>(answer) || std::holds_alternative<ListEndpoint>(answer) ||
           std::holds_alternative<SocketRoute>(answer) || is_stored();
  }
  // An endpoint of stored files and batches.
  constexpr bool is_stored() const { return std::holds_alternative<StoredEndpoint>(answer) || takes_form(); }
  constexpr bool takes_form() const { return std::holds_alternative<FileUploadRoute>(answer); }
};

struct RouteMatch {
  const Route* route = nullptr;     // null: see status
  int status = 200;                 // 404 or 405
  std::string allow;                // set for 405 and OPTIONS
  Module left_out = Module::kCore;  // for 404: the module that would answer at this path
};

std::span<const Route> routes();
RouteMatch find_route(std::string_view method, std::string_view path);

}  // namespace quire
