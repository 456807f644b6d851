// Document: a JSON Schema with its identifiers: resolves a $ref to its subschema, and knows a subschema's pointer and
// draft. One thread at a time while compiling. Invariant: the parsed JSON never changes, so subschemas are known by
// their address.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/json/json_fwd.h"
#include "core/grammar/limits.h"

namespace quire::grammar {

using Json = SortedJson;

enum class Draft { k3, k4, k6, k7, k2019, k2020 };

class Document {
 public:
  Document(std::string_view text, Budget& budget);
  ~Document();
  const Json& root() const { return *root_; }
  const Json& always() const { return *always_; }
  // The subschema that `reference` names inside `from`. Throws Refusal if it is remote or does not exist.
  const Json& resolve(const Json& from, const std::string& reference, const std::string& keyword);
  std::string pointer(const Json& schema) const;  // "#/properties/a"
  Draft draft(const Json& schema) const;
  // Number of subschemas with this $dynamicAnchor (or $recursiveAnchor for "").
  std::size_t num_dynamic_anchors(const std::string& name) const;
  bool has_keyword(std::string_view keyword) const;

 private:
  struct Info {
    std::string pointer;
    std::size_t resource = 0;
  };
  struct Resource {
    std::string uri;
    const Json* root;
    Draft draft;
    std::unordered_map<std::string, const Json*> anchors;
  };

  void index(const Json& schema, const std::string& pointer, std::size_t resource, std::size_t depth);
  void index_children(const Json& schema, const std::string& pointer, std::size_t resource, std::size_t depth);
  std::size_t identify(const Json& schema, const std::string& pointer, std::size_t resource);
  const Json& follow_pointer(const Resource& resource, const std::string& fragment, const std::string& reference);

  Budget& budget_;
  std::unique_ptr<Json> root_;
  std::unique_ptr<Json> always_;
  std::unordered_map<const Json*, Info> infos_;
  std::vector<Resource> resources_;
  std::unordered_map<std::string, std::size_t> dynamic_anchors_;
  std::unordered_map<std::string, std::size_t> keywords_;
};

// A reference-token of a JSON pointer, escaped (RFC 6901).
std::string pointer_token(std::string_view text);

}  // namespace quire::grammar
