#include "core/text/jinja/calls/loop_context.h"

#include <algorithm>

#include "core/text/jinja/failure.h"

namespace quire::jinja {

std::string LoopContext::repr(Evaluator& /*evaluator*/) const {
  return "<LoopContext " + std::to_string(index_ + 1) + "/" + std::to_string(items_.size()) + ">";
}

Value LoopContext::neighbour(std::size_t index, std::string_view which) const {
  if (index < items_.size()) return items_[index];
  return Value::undefined("there is no " + std::string(which) + " item");
}

Value LoopContext::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) fail("no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

Value LoopContext::changed(const Arguments& arguments) {
  const auto& values = arguments.positional;
  const bool same = last_changed_ && last_changed_->size() == values.size() &&
                    std::equal(values.begin(), values.end(), last_changed_->begin(), equal);
  if (!same) last_changed_ = values;
  return Value::boolean(!same);
}

std::optional<Value> LoopContext::attribute(Evaluator& /*evaluator*/, std::string_view name) {
  if (name == "index") return Value::count(index_ + 1);
  if (name == "index0") return Value::count(index_);
  if (name == "revindex") return Value::count(items_.size() - index_);
  if (name == "revindex0") return Value::count(items_.size() - index_ - 1);
  if (name == "first") return Value::boolean(index_ == 0);
  if (name == "last") return Value::boolean(index_ + 1 == items_.size());
  if (name == "length") return Value::count(items_.size());
  if (name == "depth") return Value::count(depth_ + 1);
  if (name == "depth0") return Value::count(depth_);
  if (name == "previtem") return neighbour(index_ - 1, "previous");
  if (name == "nextitem") return neighbour(index_ + 1, "next");
  if (name != "cycle" && name != "changed") return std::nullopt;
  const bool is_cycle = name == "cycle";
  return Value::object(std::make_shared<Function>(
      std::string(name),
      [self = shared_from_this(), is_cycle](Evaluator& /*evaluator*/, const Arguments& arguments) {
        return is_cycle ? self->cycle(arguments) : self->changed(arguments);
      },
      "method", nesting() + 1));
}

Value LoopContext::call(Evaluator& evaluator, const Arguments& arguments) {
  if (!stmt_.flag) fail("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1) fail("loop() takes one iterable");
  return Value::string(evaluator.run_recursion(stmt_, evaluator.iterate(arguments.positional[0]), depth_ + 1, parent_));
}

}  // namespace quire::jinja
