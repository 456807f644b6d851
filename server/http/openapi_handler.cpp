#include "server/http/openapi_handler.h"

#include "server/api/reference/openapi.h"

namespace quire {

Response openapi_response(ServerState&) {
  static const std::string kDocument = dump_json(reference::openapi_document());
  return Response{200, "application/json", kDocument};
}

}  // namespace quire
