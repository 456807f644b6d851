#include "core/grammar/json_schema/document.h"

#include <algorithm>
#include <array>

#include "core/base/json/json_depth.h"
#include "core/base/json/json_memory.h"
#include "core/base/percent.h"

namespace quire::grammar {

namespace {

constexpr std::array kOneSchema{
    "additionalItems",  "additionalProperties",  "contains",     "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema"};
constexpr std::array kSchemaLists{"allOf", "anyOf", "oneOf", "prefixItems", "items"};
constexpr std::array kSchemaMaps{"$defs",     "definitions", "dependencies", "dependentSchemas", "patternProperties",
                                 "properties"};

std::string member_string(const Json& schema, const char* key) {
  const auto found = schema.find(key);
  return found != schema.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Draft draft_of(const std::string& uri, Draft otherwise) {
  if (uri.find("draft-03") != std::string::npos) return Draft::k3;
  if (uri.find("draft-04") != std::string::npos) return Draft::k4;
  if (uri.find("draft-06") != std::string::npos) return Draft::k6;
  if (uri.find("draft-07") != std::string::npos) return Draft::k7;
  if (uri.find("2019-09") != std::string::npos) return Draft::k2019;
  if (uri.find("2020-12") != std::string::npos) return Draft::k2020;
  return otherwise;
}

// Resolves a reference without fragment against a base (RFC 3986, section 5.2, for the forms that schemas use).
std::string resolve_uri(const std::string& base, const std::string& reference) {
  if (reference.empty()) return base;
  const std::size_t colon = reference.find(':');
  if (colon != std::string::npos && reference.find('/') > colon) return reference;
  const std::size_t scheme = base.find("://");
  if (scheme == std::string::npos && base.starts_with("urn:")) return reference;
  if (reference.starts_with("//")) return base.substr(0, scheme == std::string::npos ? 0 : scheme + 1) + reference;
  const std::size_t path = scheme == std::string::npos ? 0 : std::min(base.find('/', scheme + 3), base.size());
  if (reference.starts_with("/")) return base.substr(0, path) + reference;
  const std::size_t last = base.rfind('/');
  std::string joined = last == std::string::npos || last < path ? base.substr(0, path) + (path > 0 ? "/" : "")
                                                                : base.substr(0, last + 1);
  joined += reference;
  for (std::size_t at = 0; (at = joined.find("/./", path)) != std::string::npos;)
    joined.erase(at, 2);
  for (std::size_t at = 0; (at = joined.find("/../", path)) != std::string::npos;) {
    const std::size_t parent = at == 0 ? std::string::npos : joined.rfind('/', at - 1);
    if (parent == std::string::npos || parent < path) break;
    joined.erase(parent, at + 3 - parent);
  }
  return joined;
}

std::string unescaped(std::string token) {
  for (std::size_t at = 0; (at = token.find('~', at)) != std::string::npos; ++at) {
    if (token.compare(at, 2, "~1") == 0) token.replace(at, 2, "/");
    if (token.compare(at, 2, "~0") == 0) token.replace(at, 2, "~");
  }
  return token;
}

}  // namespace

std::string pointer_token(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '~') {
      result += "~0";
    } else if (c == '/') {
      result += "~1";
    } else {
      result.push_back(c);
    }
  }
  return result;
}

Document::Document(std::string_view text, Budget& budget) : budget_(budget), always_(std::make_unique<Json>(true)) {
  if (text.size() > budget.limits().max_source_bytes) throw Refusal("the schema is too large", "#");
  if (nests_deeper(text, budget.limits().max_depth)) throw Refusal("the schema nests too deeply", "#");
  root_ = std::make_unique<Json>(Json::parse(text.begin(), text.end(), nullptr, false));
  if (root_->is_discarded()) throw Refusal("the schema is not valid JSON", "#");
  if (!root_->is_object() && !root_->is_boolean()) throw Refusal("a schema is an object or a boolean", "#");
  resources_.push_back(Resource{"", root_.get(), Draft::k2020, {}});
  index(*root_, "#", 0, 0);
}

Document::~Document() = default;

std::size_t Document::identify(const Json& schema, const std::string& pointer, std::size_t resource) {
  const std::string meta = member_string(schema, "$schema");
  const Draft draft = draft_of(meta, resources_[resource].draft);
  if (pointer == "#") resources_[0].draft = draft;
  std::string id = member_string(schema, "$id");
  if (id.empty() && draft <= Draft::k4) id = member_string(schema, "id");
  if (draft <= Draft::k7 && schema.contains("$ref")) id.clear();  // siblings of $ref are ignored in these drafts
  const std::size_t hash = id.find('#');
  const std::string fragment = hash == std::string::npos ? "" : id.substr(hash + 1);
  id = id.substr(0, hash);
  if (!id.empty()) {
    const std::string uri = resolve_uri(resources_[resource].uri, id);
    if (pointer == "#") {
      resources_[0].uri = uri;
    } else {
      resources_.push_back(Resource{uri, &schema, draft, {}});
      resource = resources_.size() - 1;
    }
  }
  const auto name = [&](const std::string& anchor) {
    if (!anchor.empty()) resources_[resource].anchors.emplace(anchor, &schema);
  };
  if (!fragment.starts_with("/")) name(fragment);
  name(member_string(schema, "$anchor"));
  name(member_string(schema, "$dynamicAnchor"));
  if (schema.contains("$dynamicAnchor")) ++dynamic_anchors_[member_string(schema, "$dynamicAnchor")];
  if (schema.contains("$recursiveAnchor")) ++dynamic_anchors_[""];
  return resource;
}

void Document::index(const Json& schema, const std::string& pointer, std::size_t resource, std::size_t depth) {
  if (depth > budget_.limits().max_depth) throw Refusal("the schema nests too deeply", pointer);
  budget_.spend(2);
  if (infos_.contains(&schema)) return;
  if (schema.is_object()) resource = identify(schema, pointer, resource);
  infos_.emplace(&schema, Info{pointer, resource});
  if (schema.is_object()) index_children(schema, pointer, resource, depth);
}

void Document::index_children(const Json& schema, const std::string& pointer, std::size_t resource, std::size_t depth) {
  for (const auto& [key, value] : schema.items()) {
    ++keywords_[key];
    const std::string below = pointer + "/" + pointer_token(key);
    const auto is = [&key](const char* name) { return key == name; };
    if ((value.is_object() || value.is_boolean()) && std::any_of(kOneSchema.begin(), kOneSchema.end(), is)) {
      index(value, below, resource, depth + 1);
    } else if (value.is_array() && std::any_of(kSchemaLists.begin(), kSchemaLists.end(), is)) {
      for (std::size_t i = 0; i < value.size(); ++i)
        index(value[i], below + "/" + std::to_string(i), resource, depth + 1);
    } else if (value.is_object() && std::any_of(kSchemaMaps.begin(), kSchemaMaps.end(), is)) {
      for (const auto& [name, child] : value.items()) {
        if (child.is_object() || child.is_boolean())
          index(child, below + "/" + pointer_token(name), resource, depth + 1);
      }
    }
  }
}

const Json& Document::follow_pointer(const Resource& resource, const std::string& fragment,
                                     const std::string& reference) {
  const Json* at = resource.root;
  const Info base = infos_.at(at);
  std::string path = base.pointer;
  std::size_t resource_index = base.resource;
  for (std::size_t begin = 1; begin <= fragment.size();) {
    const std::size_t end = std::min(fragment.find('/', begin), fragment.size());
    const std::string token = unescaped(fragment.substr(begin, end - begin));
    begin = end + 1;
    path += "/" + pointer_token(token);
    if (at->is_object() && at->contains(token)) {
      at = &(*at)[token];
    } else if (at->is_array() && !token.empty() && token.size() < 9 &&
               std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
               std::stoul(token) < at->size()) {
      at = &(*at)[std::stoul(token)];
    } else {
      throw Refusal("the reference " + reference + " leads nowhere");
    }
    const auto known = infos_.find(at);
    if (known != infos_.end()) resource_index = known->second.resource;
  }
  if (!at->is_object() && !at->is_boolean()) throw Refusal("the reference " + reference + " does not lead to a schema");
  index(*at, path, resource_index, 0);
  return *at;
}

const Json& Document::resolve(const Json& from, const std::string& reference, const std::string& keyword) {
  budget_.spend(20);
  const std::string where = pointer(from) + "/" + keyword;
  try {
    const std::size_t hash = reference.find('#');
    const std::size_t here = infos_.at(&from).resource;
    const std::string base = reference.substr(0, hash);
    const std::string fragment = hash == std::string::npos ? "" : leniently_decoded(reference.substr(hash + 1));
    std::size_t target = here;
    if (!base.empty()) {
      const std::string uri = resolve_uri(resources_[here].uri, base);
      target = 0;
      while (target < resources_.size() && resources_[target].uri != uri)
        ++target;
      if (target == resources_.size())
        throw Refusal("the reference " + reference + " is remote, which is not supported");
    }
    if (fragment.empty()) return *resources_[target].root;
    if (fragment.starts_with("/")) return follow_pointer(resources_[target], fragment, reference);
    const auto found = resources_[target].anchors.find(fragment);
    if (found == resources_[target].anchors.end()) throw Refusal("the reference " + reference + " leads nowhere");
    return *found->second;
  } catch (const Refusal& refusal) {
    throw Refusal(refusal.what(), where);
  }
}

std::string Document::pointer(const Json& schema) const {
  const auto found = infos_.find(&schema);
  return found == infos_.end() ? "#" : found->second.pointer;
}

Draft Document::draft(const Json& schema) const {
  const auto found = infos_.find(&schema);
  return resources_[found == infos_.end() ? 0 : found->second.resource].draft;
}

std::size_t Document::num_dynamic_anchors(const std::string& name) const {
  const auto found = dynamic_anchors_.find(name);
  return found == dynamic_anchors_.end() ? 0 : found->second;
}

bool Document::has_keyword(std::string_view keyword) const {
  return keywords_.contains(std::string(keyword));
}

}  // namespace quire::grammar
