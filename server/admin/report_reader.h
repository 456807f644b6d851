// ReportReader: rights of a reader of reports about the server. Plain value; any thread.
#pragma once

#include <string>
#include <string_view>

namespace quire {

struct ReportReader {
  bool sees_keys = false;  // names of keys: the reader has a key, or none exist
  bool sees_all = false;   // ids of all requests: an admin
  std::string key_name = {};

  // A request's id gives access to its stream, so only its owner sees it.
  bool sees_id_of(std::string_view owner) const { return sees_all || (!key_name.empty() && owner == key_name); }
};

}  // namespace quire
