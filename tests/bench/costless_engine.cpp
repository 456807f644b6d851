#include "tests/bench/costless_engine.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "core/text/chat_template.h"
#include "core/text/chat_template_capabilities.h"
#include "tests/bench/stream_client.h"

namespace quire::bench {

namespace {

class StampTokenizer final : public Tokenizer {
 public:
  StampTokenizer() {
    texts_.reserve(kNumStamps);
    for (std::int32_t i = 0; i < kNumStamps; ++i) {
      const std::string digits = std::to_string(i);
      texts_.push_back(std::string(kStampDigits - digits.size(), '0') + digits);
    }
  }
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool) const override {
    return std::vector<TokenId>(pieces.size(), TokenId{0});
  }
  std::int32_t vocab_size() const override { return kNumStamps + 1; }
  std::string_view token_bytes(TokenId id) const override {
    return id.value >= 0 && id.value < kNumStamps ? std::string_view(texts_[static_cast<std::size_t>(id.value)]) : "";
  }
  bool is_special(TokenId id) const override { return id == end_[0]; }
  std::optional<TokenId> find_token(std::string_view) const override { return std::nullopt; }
  std::optional<TokenId> bos() const override { return std::nullopt; }
  std::span<const TokenId> end_of_generation() const override { return end_; }
  bool strips_leading_space() const override { return false; }

 private:
  std::vector<std::string> texts_;
  std::array<TokenId, 1> end_{TokenId{kNumStamps}};
};

QueueOptions unbounded() {
  QueueOptions options;
  options.max_queued_requests = 1 << 20;
  return options;
}

}  // namespace

CostlessEngine::CostlessEngine(std::size_t num_streams, std::chrono::nanoseconds period)
    : num_streams_(num_streams), period_(period), queue_(unbounded()), thread_([this] { run(); }) {}

CostlessEngine::~CostlessEngine() {
  stopping_ = true;
  queue_.wake();
  thread_.join();
}

void CostlessEngine::take_submissions() {
  std::vector<Submission> submissions;
  std::vector<Abort> aborts;
  queue_.drain_into(submissions, aborts);
  for (Submission& submission : submissions) {
    submission.ticket.give_back();
    const std::int32_t left = submission.request->sampling.max_tokens;
    live_.push_back(Live{std::move(submission), left});
  }
  for (const Abort& abort : aborts)
    std::erase_if(live_, [&](const Live& live) { return live.submission.request->id == abort.request_id; });
}

void CostlessEngine::step() {
  const TokenId token{stamp_now()};
  for (Live& live : live_) {
    OutputEvent event;
    event.tokens.push_back(token);
    if (--live.left == 0) {
      event.finish.emplace();
      event.finish->reason = FinishReason::kLength;
      event.finish->num_generated_tokens = live.submission.request->sampling.max_tokens;
    }
    live.submission.sink->send(std::move(event));
  }
  std::erase_if(live_, [](const Live& live) { return live.left == 0; });
}

void CostlessEngine::run() {
  ::pthread_setname_np(::pthread_self(), "engine");
  kEngineThread.assume();
  bool started = false;
  Clock::time_point next{};
  while (!stopping_) {
    take_submissions();
    if (!started && live_.size() >= num_streams_) {
      started = true;
      next = Clock::now();
    }
    if (!started || live_.empty()) {
      started = false;
      queue_.wait(std::nullopt);
      continue;
    }
    if (const auto now = Clock::now(); now > next + period_ && period_.count() > 0) ++num_late_;
    step();
    next += period_;
    if (period_.count() > 0) std::this_thread::sleep_until(next);
  }
}

std::shared_ptr<ServedModel> costless_model(RequestQueue& queue) {
  auto model = std::make_shared<ServedModel>();
  model->name = "costless";
  model->info.architecture = "llama";
  model->info.vocab_size = kNumStamps + 1;
  model->info.hidden_size = 4;
  model->tokenizer = std::make_shared<StampTokenizer>();
  model->chat_template = std::make_shared<ChatTemplate>(*ChatTemplate::parse(kDefaultChatTemplate));
  model->template_capabilities = probe_capabilities(*model->chat_template);
  model->tool_format = *find_tool_format("hermes");
  model->max_model_len = 1 << 20;
  model->max_num_choices = 1;
  model->queue = std::shared_ptr<RequestQueue>(std::shared_ptr<void>(), &queue);  // the engine's
  return model;
}

}  // namespace quire::bench
