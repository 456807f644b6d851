// Conversation: the messages and settings of one terminal chat, and the commands that change them. One thread at a
// time. Invariant: messages alternate between user and assistant, after at most one system message.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace quire::cli {

class Conversation {
 public:
  // The text that `/help` prints.
  static std::string help();

  // Applies `/set NAME VALUE`, such as "temperature", "0.2". The error lists the accepted values.
  Result<void> set(std::string_view name, std::string_view value);
  std::string settings() const;  // a line per setting

  // Adds a picture to the next question. The error says why it cannot be read.
  Result<void> attach(const std::string& path);
  std::size_t num_attached() const { return attached_.size(); }

  // The request for an answer to `question`; the question becomes part of the conversation with its answer.
  nlohmann::json body(const std::string& model, const std::string& question) const;
  void add(const std::string& question, const std::string& answer);
  // Removes the last question and its answer, attaches its pictures again and returns its text; empty if there is none.
  std::string take_back();
  void clear();

 private:
  std::string system_;
  nlohmann::json fields_ = nlohmann::json::object();  // fields of the request
  nlohmann::json messages_ = nlohmann::json::array();
  nlohmann::json attached_ = nlohmann::json::array();  // parts of the next question
};

}  // namespace quire::cli
