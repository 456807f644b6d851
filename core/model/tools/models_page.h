// The page of deploy/docs that says which models are served: made from the registry, the Hugging Face families and the
// synthetic shapes, so that it cannot say anything else than the program does. Any thread.
#pragma once

#include <string>

namespace quire {

std::string models_page();

}  // namespace quire
