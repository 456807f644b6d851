#include "server/api/common/model_table.h"

#include <optional>
#include <string>

namespace quire {

namespace {

// Stops at the body's top-level member "model".
class NameFinder : public nlohmann::json_sax<Json> {
 public:
  const std::optional<std::string>& name() const { return name_; }

  bool key(string_t& name) override {
    is_model_ = depth_ == 1 && name == "model";
    return true;
  }
  bool string(string_t& value) override {
    if (is_model_) name_ = std::move(value);
    return !is_model_;
  }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool null() override { return !is_model_; }
  bool boolean(bool) override { return !is_model_; }
  bool number_integer(number_integer_t) override { return !is_model_; }
  bool number_unsigned(number_unsigned_t) override { return !is_model_; }
  bool number_float(number_float_t, const string_t&) override { return !is_model_; }
  bool binary(binary_t&) override { return false; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool enter() {
    ++depth_;
    return !is_model_;
  }
  bool leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  bool is_model_ = false;
  std::optional<std::string> name_;
};

}  // namespace

const TableEntry* peek_model(const ModelTable& models, std::string_view body) {
  if (models.entries().size() == 1) return &models.entries().front();
  NameFinder finder;
  Json::sax_parse(body, &finder);
  const auto found = models.entry(finder.name().value_or(""));
  return found ? *found : nullptr;
}

}  // namespace quire
