// The web page at `/` and its files under `/ui/`, served from the binary. Any thread.
#pragma once

#include "server/wire/request_head.h"
#include "server/wire/response.h"

namespace quire {

// The file that the path names: compressed if the client takes gzip, 304 if the client has it already.
Response page_file(const RequestHead& head);

}  // namespace quire
