#include "server/http/openapi_handler.h"

#include "server/api/reference/openapi.h"

namespace quire {

Response openapi_response(ServerState&, const ReportReader&) {
  static const std::string kDocument = dump_json(reference::openapi_document());
  Response response;
  response.document = kDocument;
  return response;
}

}  // namespace quire
