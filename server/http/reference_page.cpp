#include "server/http/reference_page.h"

#include "server/api/reference/openapi.h"

namespace quire {

Response openapi_page(ServerState&) {
  static const std::string kDocument = dump_json(reference::openapi_document());
  return Response{200, "application/json", kDocument};
}

}  // namespace quire
