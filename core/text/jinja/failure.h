// Failure and Interrupted: how an evaluation inside core/text/jinja stops. Any thread.
// Invariant: neither leaves this folder: Template::parse and Template::render turn it into Result<T>.
#pragma once

#include <string>
#include <utility>

namespace quire::jinja {

struct Failure {
  std::string message;
  int line = 0;  // line of the template; 0: the evaluator fills in its current line
};

// The rendering's WorkLimit was reached.
struct Interrupted {};

[[noreturn]] inline void fail(std::string message, int line = 0) {
  throw Failure{std::move(message), line};
}

}  // namespace quire::jinja
