#include "server/dev/commands.h"

#include <istream>
#include <ostream>
#include <string>

#include "core/base/json/json.h"

namespace quire::dev {

void answer_json_lines(std::istream& in, std::ostream& out, const JsonLineHandler& answer) {
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    Json result;
    try {
      result = answer(Json::parse(line));
    } catch (const Json::exception& problem) {
      result = {{"error", problem.what()}};
    }
    out << result.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n' << std::flush;
  }
}

}  // namespace quire::dev
