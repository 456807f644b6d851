#include "server/cli/json_lines.h"

#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

namespace quire {

void answer_json_lines(std::istream& in, std::ostream& out, const JsonLineHandler& answer) {
  using nlohmann::ordered_json;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    ordered_json result;
    try {
      result = answer(ordered_json::parse(line));
    } catch (const ordered_json::exception& problem) {
      result = {{"error", problem.what()}};
    }
    out << result.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n' << std::flush;
  }
}

}  // namespace quire
