#include <catch2/catch.hpp>

#include "core/text/fill_in_the_middle.h"
#include "server/api/common/json.h"
#include "server/api/completions/completions.h"
#include "server/api/llama/llama_completion.h"
#include "server/api/ollama/ollama.h"
#include "server/router.h"
#include "tests/server/fake_tokenizer.h"
#include "tests/server/test_server.h"
#include "tests/support/ready_table.h"

using namespace quire;
using namespace quire::test;

namespace {

Json completion(HttpClient& client, const std::string& body) {
  return answer_to(client, "/completion", body);
}

constexpr TokenId kPrefix{260};
constexpr TokenId kSuffix{261};
constexpr TokenId kMiddle{262};
constexpr TokenId kFile{263};

// Knows how to fill in the middle, in Qwen's names.
class CodeTokenizer : public ByteTokenizer {
 public:
  std::int32_t vocab_size() const override { return kFirst + static_cast<std::int32_t>(kNames.size()); }
  std::string_view token_bytes(TokenId id) const override {
    return id.value < kFirst ? ByteTokenizer::token_bytes(id) : kNames.at(static_cast<std::size_t>(id.value - kFirst));
  }
  std::optional<TokenId> find_token(std::string_view text) const override {
    const auto found = std::find(kNames.begin(), kNames.end(), text);
    if (found == kNames.end()) return ByteTokenizer::find_token(text);
    return TokenId{kFirst + static_cast<std::int32_t>(found - kNames.begin())};
  }

 private:
  static constexpr std::int32_t kFirst = kPrefix.value;
  static constexpr std::array<std::string_view, 4> kNames = {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>",
                                                             "<|file_sep|>"};
};

// Counts the bytes that it tokenizes. One thread.
class CountingTokenizer final : public CodeTokenizer {
 public:
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool add_special) const override {
    for (const TextPiece& piece : pieces)
      num_bytes_ += piece.text.size();
    return CodeTokenizer::encode(pieces, add_special);
  }
  std::size_t num_bytes() const { return num_bytes_; }

 private:
  mutable std::size_t num_bytes_ = 0;
};

// The request that an infill, or another endpoint's call, becomes on such a model of that context.
Result<std::shared_ptr<const Request>> infill(const std::string& body, std::int64_t max_model_len = 2048,
                                              ModelEndpoint parse = &parse_infill) {
  RequestQueue queue({});
  auto model = fake_model(queue, max_model_len);
  model->tokenizer = std::make_shared<CodeTokenizer>();
  auto opened = ready_table(std::move(model)).open(body, "");
  REQUIRE(opened);
  auto operation = parse(std::get<ModelCall>(*opened), Call{});
  if (!operation) return tl::make_unexpected(operation.error());
  return (*operation)->requests().at(0);
}

// Texts and tokens in turn, as one list.
std::vector<TokenId> joined(std::initializer_list<std::variant<std::string_view, TokenId>> parts) {
  std::vector<TokenId> tokens;
  for (const auto& part : parts) {
    if (const auto* const token = std::get_if<TokenId>(&part)) {
      tokens.push_back(*token);
    } else {
      const auto more = bytes(std::get<std::string_view>(part));
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
  }
  return tokens;
}

}  // namespace

TEST_CASE("llama-server's completion is answered in its own shape") {
  TestServer server;
  HttpClient client(server.port());
  const Json body = completion(client, R"({"prompt":"hello\n!","n_predict":7,"return_tokens":true,"seed":5})");
  CHECK(body["content"] == "hello\n!");
  CHECK(body["tokens"] == Json::parse("[104,101,108,108,111,10,33]"));
  CHECK(body["stop"] == true);
  CHECK(body["stop_type"] == "limit");
  CHECK(body["truncated"] == false);
  CHECK(body["has_new_line"] == true);
  CHECK(body["tokens_predicted"] == 7);
  CHECK(body["tokens_evaluated"] == 8);  // counts BOS
  CHECK(body["timings"]["prompt_n"] == 8);
  CHECK(body["timings"]["predicted_n"] == 7);
  CHECK(body["generation_settings"]["n_predict"] == 7);
  CHECK(body["generation_settings"]["seed"] == 5);
  CHECK(body["generation_settings"]["top_k"] == 40);
  const auto& sampling = server.engine().last_request()->sampling;
  CHECK(sampling.temperature == 0.8F);
  CHECK(sampling.temperature_last);
  CHECK(sampling.penalty_last_n == 64);
}

TEST_CASE("its ends are distinguished: the model's, a stop string's, the context's") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(completion(client, R"({"prompt":"hello"})")["stop_type"] == "eos");
  const Json word = completion(client, R"({"prompt":"hello","stop":["x","ll"]})");
  CHECK(word["content"] == "he");
  CHECK(word["stop_type"] == "word");
  CHECK(word["stopping_word"] == "ll");
  CHECK(word["tokens"].empty());
}

TEST_CASE("its prompt is a text, token ids, both in turn, or several of those") {
  TestServer server;
  HttpClient client(server.port());
  const auto content = [&](const std::string& prompt) {
    return completion(client, R"({"n_predict":9,"prompt":)" + prompt + "}");
  };
  CHECK(content(R"([97,98,"cd",101])")["content"] == "abcde");
  CHECK(content(R"(["abc"])")["content"] == "abc");
  const Json several = content(R"([[97,98],"ab",["a",98]])");
  REQUIRE(several.size() == 3);
  CHECK(content(R"({"prompt_string":"abc"})")["content"] == "abc");
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(several[i]["index"] == i);
    CHECK(several[i]["content"] == "ab");
  }
  for (const char* const wrong : {"[]", "7", "null", "[1e9]", "[[97],true]"}) {
    INFO(wrong);
    CHECK(refused_param(client, "/completion", std::string(R"({"prompt":)") + wrong + "}") == "prompt");
  }
}

TEST_CASE("its stream ends with the result, and has no DONE") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post("/completion", R"({"prompt":"hey","stream":true,"n_probs":1})");
  REQUIRE(reply.status == 200);
  const auto data = sse_data(reply.body);
  std::string text;
  for (std::size_t i = 0; i + 1 < data.size(); ++i) {
    const Json part = Json::parse(data[i]);
    CHECK(part["stop"] == false);
    CHECK(part["completion_probabilities"].size() == part["tokens"].size());
    text += part["content"].get<std::string>();
  }
  CHECK(text == "hey");
  const Json last = Json::parse(data.back());
  CHECK(last["stop"] == true);
  CHECK(last["content"] == "");
  CHECK(last["timings"]["predicted_n"] == 4);  // counts EOS
}

TEST_CASE("its result can be asked for in part") {
  TestServer server;
  HttpClient client(server.port());
  CHECK(completion(client,
                   R"({"prompt":"a","response_fields":["content","generation_settings/n_predict","absent/~x"]})") ==
        Json::parse(R"({"content":"a","generation_settings/n_predict":-1})"));
}

TEST_CASE("samplers that are left out are off, unknown ones are refused") {
  TestServer server;
  HttpClient client(server.port());
  const auto sampling = [&](const std::string& samplers) {
    completion(client, R"({"prompt":"a","repeat_penalty":1.5,"typical_p":0.5,"samplers":)" + samplers + "}");
    return server.engine().last_request()->sampling;
  };
  const SamplingParams few = sampling(R"(["typ_p","top_p","temperature"])");
  CHECK(few.repetition_penalty == 1.0F);
  CHECK(few.top_k == 0);
  CHECK(few.typical_p == 0.5F);
  CHECK(few.top_p == 0.95F);
  CHECK(few.min_p == 0.0F);
  CHECK(few.temperature_last);
  const SamplingParams first = sampling(R"(["penalties","temperature","top_k"])");
  CHECK(first.repetition_penalty == 1.5F);
  CHECK(first.top_k == 40);
  CHECK_FALSE(first.temperature_last);
  CHECK(sampling("[]").temperature == 1.0F);
  CHECK_FALSE(sampling("[]").order);
  for (const char* const wrong : {R"(["infill"])", R"(["top_k","top_q"])", R"("top_k")", "[1]", "{}"}) {
    INFO(wrong);
    CHECK(refused_param(client, "/completion", std::string(R"({"prompt":"a","samplers":)") + wrong + "}")
              .starts_with("samplers"));
  }
}

TEST_CASE("samplers are applied in the order that is asked for, on every endpoint, by names or letters") {
  TestServer server;
  HttpClient client(server.port());
  const auto order = [&](const std::string& path, const std::string& samplers) {
    const std::string body = R"({"prompt":"a","input":"a","max_tokens":1,"messages":[{"role":"user","content":"a"}],)";
    const std::string own = path == "/v1/responses" ? R"({"input":"a",)" : body;
    REQUIRE(client.post(path, own + R"("samplers":)" + samplers + "}").status == 200);
    return server.engine().last_request()->sampling;
  };
  using Step = SamplerStep;
  for (const char* const path :
       {"/completion", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"}) {
    INFO(path);
    CHECK(order(path, R"(["top_p","top_k"])").order == std::vector{Step::kTopP, Step::kTopK});
    CHECK(order(path, R"(["temperature","penalties"])").order == std::vector{Step::kTemperature, Step::kPenalties});
    CHECK_FALSE(order(path, R"("tx")").order);  // a part of the usual order
    CHECK_FALSE(order(path, R"("kpt")").order);
    CHECK(order(path, R"("kpt")").temperature_last);
    CHECK(order(path, R"("mk")").order == std::vector{Step::kMinP, Step::kTopK});
  }
}

TEST_CASE("adaptive-p needs its place among the samplers where they are listed") {
  TestServer server;
  HttpClient client(server.port());
  const auto target = [&](const std::string& fields) {
    completion(client, R"({"prompt":"a","adaptive_target":0.5)" + fields + "}");
    return server.engine().last_request()->sampling.adaptive.target;
  };
  CHECK(target("") == 0.5F);
  CHECK(target(R"(,"samplers":["top_k","adaptive_p"])") == 0.5F);
  CHECK(target(R"(,"samplers":["top_k"])") < 0.0F);
}

TEST_CASE("a filter that llama.cpp lacks has a name among the samplers and no letter") {
  TestServer server;
  HttpClient client(server.port());
  const auto settings = [&](const std::string& fields) {
    return completion(client, R"({"prompt":"a")" + fields + "}")["generation_settings"];
  };
  const auto is_named = [](const Json& given) {
    return std::ranges::find(given["samplers"], Json("top_a")) != given["samplers"].end();
  };
  CHECK(settings("")["top_a"] == 0.0);
  CHECK_FALSE(is_named(settings("")));
  CHECK(settings(R"(,"top_a":0.5)")["top_a"] == 0.5);
  CHECK(is_named(settings(R"(,"top_a":0.5)")));
  CHECK(is_named(settings(R"(,"top_a":0.5,"samplers":["top_a","top_k"])")));
  CHECK(server.engine().last_request()->sampling.order == std::vector{SamplerStep::kTopA, SamplerStep::kTopK});
  CHECK(settings(R"(,"top_a":0.5,"samplers":["top_k"])")["top_a"] == 0.0);
  CHECK(refused_param(client, "/completion", R"({"prompt":"a","samplers":"\u0000"})").starts_with("samplers"));
}

TEST_CASE("a bias is given by token or by text, and false forbids") {
  TestServer server;
  HttpClient client(server.port());
  completion(client, R"({"prompt":"a","logit_bias":[[97,1.5],["bc",false]]})");
  const auto bias = server.engine().last_request()->sampling.logit_bias;
  REQUIRE(bias.size() == 3);
  CHECK(bias[0] == std::pair(TokenId{97}, 1.5F));
  CHECK(bias[1] == std::pair(TokenId{98}, -std::numeric_limits<float>::infinity()));
  CHECK(bias[2].first == TokenId{99});
  for (const char* const wrong : {"[[97]]", "[[97,true]]", "[[1000000,1]]", "[[-1,1]]", "7"}) {
    INFO(wrong);
    CHECK(refused_param(client, "/completion", std::string(R"({"prompt":"a","logit_bias":)") + wrong + "}") ==
          "logit_bias");
  }
}

TEST_CASE("a conversation's slot is named in every API that generates from OpenAI's or llama-server's fields") {
  TestServer server;
  HttpClient client(server.port());
  for (const auto& [path, prompt] : {std::pair{"/completion", R"("prompt":"x")"},
                                     {"/v1/completions", R"("prompt":"x")"},
                                     {"/v1/chat/completions", R"("messages":[{"role":"user","content":"x"}])"},
                                     {"/v1/responses", R"("input":"x")"}}) {
    INFO(path);
    answer_to(client, path, std::string("{") + prompt + R"(,"id_slot":3})");
    CHECK(server.engine().last_request()->slot == 3);
    answer_to(client, path, std::string("{") + prompt + "}");
    CHECK(server.engine().last_request()->slot == -1);
    CHECK(refused_param(client, path, std::string("{") + prompt + R"(,"id_slot":-2})") == "id_slot");
  }
}

TEST_CASE("/props describes the first model") {
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.get("/props");
  REQUIRE(reply.status == 200);
  const Json props = Json::parse(reply.body);
  CHECK(props["default_generation_settings"]["n_ctx"] > 0);
  CHECK(props["default_generation_settings"]["params"]["temperature"] == Approx(0.8));
  CHECK(props["total_slots"] > 0);
  CHECK(props["model_alias"] == "fake");
}

TEST_CASE("an infill asks a code model for what belongs between two texts") {
  const auto plain =
      infill(R"({"input_prefix":"int main<|im_end|>","input_suffix":"}","prompt":"() {","n_predict":9})");
  REQUIRE(plain);
  CHECK((*plain)->prompt ==
        joined({kBos, kFile, "filename\n", kPrefix, "int main<|im_end|>() {", kSuffix, "}", kMiddle}));
  CHECK((*plain)->sampling.max_tokens == 9);
  CHECK((*plain)->sampling.stop_token_ids == std::vector<TokenId>{kFile});
  const auto files = infill(
      R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"x.h","text":"int x;"},{"text":"y"}]})");
  REQUIRE(files);
  CHECK((*files)->prompt == joined({kBos, kFile, "x.h\nint x;", kFile, "tmp\ny", kFile, "filename\n", kPrefix, "a",
                                    kSuffix, "b", kMiddle}));
}

TEST_CASE("what does not fit into an infill goes where it matters least") {
  // 64 tokens: 16 of them for the answer, 4 around the texts, 11 behind the gap.
  const std::string prefix = std::string(100, 'a') + "last words before";
  const auto cut =
      infill(R"({"input_suffix":"first words behind","n_predict":16,"input_prefix":")" + prefix + "\"}", 64);
  REQUIRE(cut);
  CHECK((*cut)->prompt ==
        joined({kBos, kPrefix, std::string_view(prefix).substr(prefix.size() - 33), kSuffix, "first words", kMiddle}));
}

TEST_CASE("of texts far longer than an infill's context only what is kept is tokenized") {
  const std::string text(1'000'000, 'x');
  const FimText both{text, text, {}};
  const FimText files{"a", "b", std::vector<FimFile>(100, FimFile{"name", text})};
  for (const FimText& each : {both, files}) {
    const CountingTokenizer tokenizer;
    const auto tokens = encode_fim(tokenizer, *find_fim_tokens(tokenizer), each, 256);
    CHECK(tokens.size() == 256);
    CHECK(tokenizer.num_bytes() < 10'000);
  }
}

TEST_CASE("an infill that cannot be is refused by name") {
  const auto param = [](const std::string& body) { return infill(body).error().param; };
  CHECK(param(R"({"input_suffix":"b"})") == "input_prefix");
  CHECK(param(R"({"input_prefix":"a"})") == "input_suffix");
  CHECK(param(R"({"input_prefix":"a","input_suffix":"b","prompt":5})") == "prompt");
  CHECK(param(R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":"ok"}]})") == "input_extra.text");
  CHECK(param(R"({"input_prefix":"a","input_suffix":"b","input_extra":[{"filename":1,"text":"x"}]})") ==
        "input_extra.filename");
  TestServer server;
  HttpClient client(server.port());
  const HttpReply reply = client.post("/infill", R"({"input_prefix":"a","input_suffix":"b"})");
  CHECK(reply.status == 400);
  CHECK(Json::parse(reply.body)["error"]["message"] == "This model has no tokens to fill in the middle");
}

TEST_CASE("a completion with a suffix, and Ollama's, fill the gap as an infill does") {
  const auto tokens = joined({kBos, kFile, "filename\n", kPrefix, "a", kSuffix, "b", kMiddle});
  const auto completion = infill(R"({"prompt":"a","suffix":"b","max_tokens":5})", 2048, &parse_completion);
  REQUIRE(completion);
  CHECK((*completion)->prompt == tokens);
  CHECK((*completion)->sampling.max_tokens == 5);
  CHECK((*completion)->sampling.stop_token_ids == std::vector<TokenId>{kFile});
  const auto several = infill(R"({"prompt":["a","c"],"suffix":"b"})", 2048, &parse_completion);
  REQUIRE(several);
  CHECK((*several)->prompt == tokens);
  CHECK((*several)->sampling.stop_token_ids == std::vector<TokenId>{kFile});
  const auto generated = infill(R"({"prompt":"a","suffix":"b"})", 2048, &parse_ollama_generate);
  REQUIRE(generated);
  CHECK((*generated)->prompt == tokens);
  CHECK(infill(R"({"prompt":[97],"suffix":"b"})", 2048, &parse_completion).error().param == "prompt");
  CHECK(infill(R"({"prompt":"a","suffix":"b","echo":true})", 2048, &parse_completion).error().param == "echo");
}
