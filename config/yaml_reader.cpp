#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "config/config_value.h"
#include "core/base/result.h"

namespace quire {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{1} << 20;
constexpr std::size_t kMostNodes = 100'000;
constexpr std::size_t kDeepest = 16;

// Builds the tree from the parser's events. Aliases are refused, so the tree is never larger than the text.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(std::string name) : name_(std::move(name)) {}

  ConfigValue take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++num_documents_ > 1) fail(mark, "a second document: one is allowed");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(mark, ConfigValue::Kind::kNull);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { fail(mark, "aliases (*name) are not allowed"); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    // yaml-cpp marks plain scalars by the tag "?" and quoted ones by "!".
    if (!tag.empty() && tag != "?" && tag != "!") fail(mark, "tags (!type) are not allowed");
    if (expects_name()) return begin_member(mark, value);
    ConfigValue& node = add(mark, ConfigValue::Kind::kScalar);
    node.text = value;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigValue::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigValue::Kind::kMap);
  }
  void OnMapEnd() override { open_.pop_back(); }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
    throw StartupError(fmt::format("{}:{}: {}", name_, std::max(mark.line, 0) + 1, what));
  }

 private:
  struct Open {
    ConfigValue* node;
    bool name_given = false;  // the name of a map's next member has been read
  };

  bool expects_name() const {
    return !open_.empty() && open_.back().node->kind == ConfigValue::Kind::kMap && !open_.back().name_given;
  }

  void begin_member(const YAML::Mark& mark, const std::string& name) {
    ConfigValue& map = *open_.back().node;
    const auto same = std::find_if(map.members.begin(), map.members.end(),
                                   [&](const ConfigMember& member) { return member.name == name; });
    if (same != map.members.end()) {
      fail(mark, fmt::format("'{}' occurs twice, first in line {}", one_line(name), same->line));
    }
    map.members.push_back({name, mark.line + 1, {}});
    open_.back().name_given = true;
  }

  // The place of the next node in the enclosing list or map.
  ConfigValue& add(const YAML::Mark& mark, ConfigValue::Kind kind) {
    if (++num_nodes_ > kMostNodes) fail(mark, "too many values");
    ConfigValue* place = &root_;
    if (!open_.empty()) {
      Open& top = open_.back();
      if (top.node->kind == ConfigValue::Kind::kList) {
        place = &top.node->items.emplace_back();
      } else if (!top.name_given) {
        fail(mark, "a key must be a plain name");
      } else {
        place = &top.node->members.back().value;
        top.name_given = false;
      }
    }
    place->kind = kind;
    place->line = mark.line + 1;
    return *place;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, ConfigValue::Kind kind) {
    refuse_anchor(mark, anchor);
    if (!tag.empty() && tag != "?" && tag != "!") fail(mark, "tags (!type) are not allowed");
    if (open_.size() == kDeepest) fail(mark, "nested too deeply");
    // The pointers stay valid: a container grows only while it is the innermost open one.
    open_.push_back({&add(mark, kind)});
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) fail(mark, "anchors (&name) are not allowed");
  }

  std::string name_;
  ConfigValue root_;
  std::vector<Open> open_;
  std::size_t num_nodes_ = 0;
  int num_documents_ = 0;
};

}  // namespace

std::string one_line(std::string_view name) {
  constexpr std::size_t kMost = 100;
  std::string out;
  for (const char c : name.substr(0, kMost)) {
    out += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return name.size() > kMost ? out + "..." : out;
}

ConfigValue read_yaml(std::string_view text, const std::string& name) {
  if (text.size() > kMostFileBytes) throw StartupError(fmt::format("{}: is larger than 1 MiB", name));
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(name);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    builder.fail(error.mark, one_line(error.msg));
  }
  ConfigValue root = builder.take();
  if (root.kind == ConfigValue::Kind::kNull) root.kind = ConfigValue::Kind::kMap;
  if (root.kind != ConfigValue::Kind::kMap) {
    throw StartupError(fmt::format("{}:{}: the file is not a mapping of keys to values", name, root.line));
  }
  return root;
}

}  // namespace quire
