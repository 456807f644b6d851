// LoopContext: the `loop` variable of one for loop. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/jinja/evaluator.h"
#include "core/text/jinja/parse/ast.h"
#include "core/text/jinja/values/object.h"

namespace quire::jinja {

class LoopContext final : public Object, public std::enable_shared_from_this<LoopContext> {
 public:
  LoopContext(const Stmt& stmt, std::vector<Value> items, std::size_t depth, std::shared_ptr<Scope> parent)
      : Object(nesting_of(items)), stmt_(stmt), items_(std::move(items)), depth_(depth), parent_(std::move(parent)) {}

  std::size_t index() const { return index_; }
  std::size_t size() const { return items_.size(); }
  const Value& current() const { return items_[index_]; }
  void advance() { ++index_; }

  std::string_view type_name() const override { return "LoopContext"; }
  std::string repr(Evaluator& evaluator) const override;
  bool callable() const override { return true; }
  std::optional<Value> attribute(Evaluator& evaluator, std::string_view name) override;
  Value call(Evaluator& evaluator, const Arguments& arguments) override;

 private:
  Value neighbour(std::size_t index, std::string_view which) const;
  Value cycle(const Arguments& arguments) const;
  Value changed(const Arguments& arguments);

  const Stmt& stmt_;
  std::vector<Value> items_;
  std::size_t index_ = 0;
  std::size_t depth_;
  std::shared_ptr<Scope> parent_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace quire::jinja
