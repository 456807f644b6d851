#include "core/text/jinja/values/text.h"

namespace quire::jinja {

std::vector<TextPiece> Text::pieces() const {
  std::vector<TextPiece> pieces;
  for (std::size_t begin = 0; begin < bytes_.size();) {
    std::size_t end = marks_.find_first_not_of(marks_[begin], begin);
    if (end == std::string::npos) end = bytes_.size();
    pieces.push_back({bytes_.substr(begin, end - begin), trusted_at(begin)});
    begin = end;
  }
  return pieces;
}

}  // namespace quire::jinja
