#include "server/admin/handlers.h"

#include "server/api/common/json.h"
#include "server/api/reference/pages.h"
#include "server/router.h"
#include "server/state/server_state.h"
#include "server/wire/response.h"

namespace quire {

Json served_openapi() {
  return reference::openapi_document(
      [](std::string_view method, std::string_view path) { return find_route(method, path).route != nullptr; });
}

Response openapi_response(ServerState&, const ReportReader&) {
  static const std::string kDocument = dump_json(served_openapi());
  Response response;
  response.document = kDocument;
  return response;
}

}  // namespace quire
