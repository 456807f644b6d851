#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/grammar/compiler.h"
#include "kernels/check.h"
#include "server/api/common/json.h"
#include "server/router.h"
#include "server/run/call_parser.h"
#include "tests/server/fake_tokenizer.h"
#include "tests/support/ready_table.h"

namespace {

using namespace quire;

constexpr std::int64_t kMaxModelLen = 4096;
constexpr int kNumVariants = 8;

// A model that soon refuses a costly grammar.
const ModelTable& fuzz_models() {
  static RequestQueue queue({});
  static const ModelTable kModels = [] {
    auto model = test::fake_model(queue, kMaxModelLen);
    GrammarLimits limits;
    limits.max_steps = 100'000;
    limits.max_time = std::chrono::milliseconds(500);
    model->grammar_compiler =
        std::make_shared<const GrammarCompiler>(std::make_shared<TokenVocabulary>(*model->tokenizer), limits);
    return test::ready_table(std::move(model));
  }();
  return kModels;
}

OutputEvent event_of(const Request& request, std::int32_t choice, bool last) {
  OutputEvent event;
  event.choice = choice;
  if (request.pooling != Pooling::kNone) {
    event.embedding = {0.6F, 0.8F};
    event.finish.emplace();
    return event;
  }
  for (const char c : std::string_view("{\"a\": 1}"))
    event.tokens.push_back(TokenId{static_cast<unsigned char>(c)});
  if (request.sampling.num_logprobs) {
    for (const TokenId token : event.tokens)
      event.logprobs.push_back({token, -0.5F, {{token, -0.5F}}});
  }
  if (choice == 0 && request.sampling.num_prompt_logprobs) event.prompt_logprobs.resize(request.prompt.size());
  if (last) event.finish.emplace().reason = FinishReason::kLength;
  return event;
}

// All values in a document, the document first.
void collect(Json& value, std::vector<Json*>& nodes) {
  nodes.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& each : value)
    collect(each, nodes);
}

// Replaces one value by an unlikely one or by another of the document: mutated bytes seldom yield such JSON.
Json variant_of(const Json& body, std::minstd_rand& random) {
  static const Json kUnlikely = Json::parse(R"([null, true, 0, -1, 1, 1.5, 1e308, -1e-308, 9223372036854775807,
    18446744073709551615, 2147483648, "", "x", "\u0000\uffff<|im_end|>", [], {}, [[]], [null], [{}], {"": null},
    {"type": "text"}, {"type": "function", "function": {"name": "f"}}, ["a", "a"], {"type": "json_schema"}])");
  Json made = body;
  std::vector<Json*> nodes;
  collect(made, nodes);
  Json& target = *nodes[random() % nodes.size()];
  const std::size_t choice = random() % (kUnlikely.size() + 2);
  if (choice < kUnlikely.size()) {
    target = kUnlikely[choice];
  } else {
    const Json other = *nodes[random() % nodes.size()];
    target = other;
  }
  return made;
}

// Checks that an accepted request asks for bounded work of the engine, and that the engine's answer can be written.
void answer(Operation& operation) {
  std::string out;
  if (operation.streams()) operation.begin(out);
  for (std::size_t i = 0; i < operation.requests().size(); ++i) {
    const Request& request = *operation.requests()[i];
    QUIRE_CHECK(!request.prompt.empty() && request.num_choices >= 1, "a request has a prompt and a choice");
    QUIRE_CHECK(request.prompt.size() < kMaxModelLen, "a prompt fits the model");
    for (const bool last : {false, true}) {
      for (std::int32_t choice = 0; choice < request.num_choices; ++choice)
        operation.on_event(i, event_of(request, choice, last), out);
    }
  }
  QUIRE_CHECK(!operation.error(), "an answer without an error has none");
  operation.finish(out);
  QUIRE_CHECK(!out.empty(), "there is an answer");
  if (!operation.streams()) QUIRE_CHECK(parse_json(out, 1000).has_value(), "an answer is JSON");
  operation.summary();
}

void ask(const Route& route, Call call, std::string body) {
  call.body = std::move(body);
  call.responses = std::make_shared<ResponseStore>(ResponseStoreOptions{});
  const auto read = parse_call(route, fuzz_models(), call);
  if (read) return answer(*std::get<std::unique_ptr<Operation>>(*read));
  QUIRE_CHECK(!read.error().message.empty(), "a refusal says why");
  QUIRE_CHECK(read.error().kind != ErrorKind::kInternal, "a refusal is the request's fault");
}

}  // namespace

// The first line is a path, the rest a body: it is refused with a reason, or gives an operation that can be answered;
// the same holds for bodies that differ from it in one value.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t line_end = std::min(input.find('\n'), input.size());
  const RouteMatch match = find_route("POST", input.substr(0, line_end));
  if (match.route == nullptr || !match.route->is_api()) return 0;
  Call call;
  call.path = input.substr(0, line_end);
  call.request_id = "fuzz";
  const std::string body(input.substr(std::min(line_end + 1, input.size())));
  ask(*match.route, call, body);
  const auto document = parse_json(body, 64);
  if (!document) return 0;
  std::minstd_rand random(static_cast<std::uint32_t>(std::hash<std::string>()(body)) | 1U);
  for (int i = 0; i < kNumVariants; ++i)
    ask(*match.route, call, dump_json(variant_of(*document, random)));
  return 0;
}
