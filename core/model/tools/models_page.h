// The page of deploy/docs that lists the supported models: made from the registry, the Hugging Face families and the
// synthetic shapes, so that it always agrees with the program. Any thread.
#pragma once

#include <string>

namespace quire {

std::string models_page();

}  // namespace quire
