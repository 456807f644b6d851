#include "server/api/operation.h"

#include <random>

namespace quire {

std::string make_id(std::string_view prefix) {
  constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz";
  // Ids must be unique, not secret; one generator per thread keeps them off the system's entropy.
  thread_local std::mt19937_64 generator{std::random_device{}()};
  std::uniform_int_distribution<std::size_t> letter(0, kAlphabet.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 24; ++i)
    id += kAlphabet[letter(generator)];
  return id;
}

void append_sse(std::string& out, std::string_view name, std::string_view data) {
  if (!name.empty()) {
    out += "event: ";
    out += name;
    out += '\n';
  }
  out += "data: ";
  out += data;
  out += "\n\n";
}

}  // namespace quire
