#include "server/fleet/resp_reader.h"

#include <hiredis/read.h>

#include <new>
#include <utility>

namespace quire {

namespace {

void* make(RespReply reply) {
  return new (std::nothrow) RespReply(std::move(reply));
}

void* make_text(const redisReadTask* task, char* text, std::size_t size) {
  const bool is_error = task->type == REDIS_REPLY_ERROR;
  try {
    return make({.kind = is_error ? RespReply::Kind::kError : RespReply::Kind::kText, .text = std::string(text, size)});
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Hiredis 1 counts with another type.
template <typename Count>
void* refuse_array(const redisReadTask* /*task*/, Count /*num_elements*/) {
  return nullptr;
}

void* make_number(const redisReadTask* /*task*/, long long number) {
  return make({.kind = RespReply::Kind::kNumber, .number = number});
}

void* make_nothing(const redisReadTask* /*task*/) {
  return make({});
}

void drop(void* reply) {
  delete static_cast<RespReply*>(reply);
}

// Hiredis 1 also reads RESP3's forms, which Quire's commands never request; without a function for them it would return
// a null pointer.
template <typename Functions>
void refuse_newer_forms(Functions& functions) {
  if constexpr (requires { functions.createDouble; }) {
    functions.createDouble = [](const redisReadTask*, double, char*, std::size_t) -> void* { return nullptr; };
    functions.createBool = [](const redisReadTask*, int) -> void* { return nullptr; };
  }
}

std::unique_ptr<redisReplyObjectFunctions> make_functions() {
  auto functions = std::make_unique<redisReplyObjectFunctions>();
  functions->createString = make_text;
  functions->createArray = refuse_array;
  functions->createInteger = make_number;
  functions->createNil = make_nothing;
  functions->freeObject = drop;
  refuse_newer_forms(*functions);
  return functions;
}

redisReader* make_reader(redisReplyObjectFunctions& functions) {
  redisReader* const reader = redisReaderCreateWithFunctions(&functions);
  if (reader == nullptr) throw std::bad_alloc();
  return reader;
}

}  // namespace

RespReader::RespReader(std::size_t max_bytes)
    : max_bytes_(max_bytes), functions_(make_functions()), reader_(make_reader(*functions_)) {}

RespReader::~RespReader() {
  redisReaderFree(reader_);
}

bool RespReader::feed(std::span<const char> bytes) {
  if (!why_.empty()) return false;
  if (redisReaderFeed(reader_, bytes.data(), bytes.size()) != REDIS_OK) why_ = reader_->errstr;
  if (reader_->len - reader_->pos > max_bytes_) why_ = "a reply is too large";
  return why_.empty();
}

std::unique_ptr<RespReply> RespReader::next() {
  if (!why_.empty()) return nullptr;
  void* reply = nullptr;
  if (redisReaderGetReply(reader_, &reply) != REDIS_OK)
    why_ = "it does not speak the protocol (" + std::string(reader_->errstr) + ")";
  return std::unique_ptr<RespReply>(static_cast<RespReply*>(reply));
}

}  // namespace quire
