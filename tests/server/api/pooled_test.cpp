// Reranking, scores, classes and pooled vectors: the forms of the clients that ask for them, on a fake engine.
#include <catch2/catch.hpp>

#include "tests/server/test_server.h"

using namespace quire;
using namespace quire::test;

namespace {

// A tokenizer that puts its special tokens around pairs, with room for words that say yes and no.
class PairTokenizer final : public ByteTokenizer {
 public:
  PairTokens pair_tokens() const override { return {bos_, both_, eos_}; }

 private:
  const std::vector<TokenId> bos_{kBos};
  const std::vector<TokenId> both_{kEos, kEos};
  const std::vector<TokenId> eos_{kEos};
};

void let_classify(ServedModel& model) {
  model.tokenizer = std::make_shared<PairTokenizer>();
  model.info.pooling = Pooling::kCls;
  model.tasks.num_labels = 2;
  model.tasks.labels = {"good", "bad"};
}

void let_answer(ServedModel& model) {
  model.tasks.answers = {TokenId{'y'}, TokenId{'n'}};
  model.tasks.pair_prompt = "<|im_start|>{instruction}|{query}|{document}<|im_end|>";
}

double chance(double score) {
  return 1.0 / (1.0 + std::exp(-score));
}

constexpr const char* kThree = R"({"query":"q","documents":["a","dddd",{"text":"cc"}])";

}  // namespace

TEST_CASE("rerank gives the best documents first, in Cohere's and Jina's form") {
  TestServer server({}, test_options(), let_classify);
  HttpClient client(server.port());
  for (const char* path : {"/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking"}) {
    const Json answer = answer_to(client, path, std::string(kThree) + "}");
    REQUIRE(answer["results"].size() == 3);
    CHECK(answer["results"][0]["index"] == 1);
    CHECK(answer["results"][1]["index"] == 2);
    CHECK(answer["results"][2]["index"] == 0);
    // [bos] q [eos] [eos] dddd [eos] are 9 tokens.
    CHECK(std::abs(answer["results"][0]["relevance_score"].get<double>() - chance(9.0 / 64.0)) < 1e-6);
    CHECK(answer["usage"]["total_tokens"] == 9 + 7 + 6);
    CHECK(answer["model"] == "fake");
    CHECK(answer["id"].get<std::string>().starts_with("rerank-"));
    CHECK(answer["meta"]["api_version"]["version"] == "2");
    // Cohere's second version returns documents on demand only.
    CHECK(answer["results"][0].contains("document") == (std::string(path) != "/v2/rerank"));
  }
  CHECK(server.engine().last_request()->pooling == Pooling::kCls);
  CHECK(server.engine().last_request()->pooled_output == PooledOutput::kLabels);
}

TEST_CASE("rerank's fields do what their names say") {
  TestServer server({}, test_options(), let_classify);
  HttpClient client(server.port());
  const auto results = [&](const std::string& fields, const std::string& path = "/v2/rerank") {
    return answer_to(client, path, std::string(kThree) + fields + "}")["results"];
  };
  CHECK(results(R"(,"top_n":1)").size() == 1);
  CHECK(results(R"(,"top_n":7)").size() == 3);
  CHECK(results(R"(,"return_documents":true)")[1]["document"]["text"] == "cc");
  CHECK(!results(R"(,"return_documents":false)", "/rerank")[0].contains("document"));
  CHECK(results(R"(,"raw_scores":true)")[0]["relevance_score"] == 9.0 / 64.0);
  CHECK(results(R"(,"use_activation":false)")[0]["relevance_score"] == 9.0 / 64.0);
  // A document of one token is as good as any other of one token: their order stays.
  const Json cut = results(R"(,"max_tokens_per_doc":1)");
  CHECK(cut[0]["index"] == 0);
  CHECK(cut[2]["index"] == 2);
  // text-embeddings-inference's names, and its answer.
  const Json tei = answer_to(client, "/rerank", R"({"query":"q","texts":["a","bb"],"return_text":true})");
  REQUIRE(tei.size() == 2);
  CHECK(tei[0]["index"] == 1);
  CHECK(tei[0]["text"] == "bb");
  CHECK(tei[0]["score"] > tei[1]["score"]);
}

TEST_CASE("rerank refuses what it cannot judge, by its place") {
  TestServer server({}, test_options(), let_classify);
  HttpClient client(server.port());
  const auto refused = [&](const std::string& body) { return refused_param(client, "/v1/rerank", body); };
  CHECK(refused(R"({"documents":["a"]})") == "query");
  CHECK(refused(R"({"query":["a","b"],"documents":["a"]})") == "query");
  CHECK(refused(R"({"query":"q"})") == "documents");
  CHECK(refused(R"({"query":"q","documents":[]})") == "documents");
  CHECK(refused(R"({"query":"q","documents":["a",7]})") == "documents[1]");
  CHECK(refused(R"({"query":"q","documents":[{"title":"t"}]})") == "documents[0]");
  CHECK(refused(R"({"query":"q","documents":["a"],"top_n":0})") == "top_n");
  const std::string endless(3000, 'x');
  const HttpReply reply = client.post("/v1/rerank", R"({"query":"q","documents":["a",")" + endless + R"("]})");
  CHECK(reply.status == 400);
  CHECK(Json::parse(reply.body)["error"]["code"] == "context_length_exceeded");
  CHECK(Json::parse(reply.body)["error"]["param"] == "documents[1]");
  const std::string shortened = R"({"query":"q","max_tokens_per_doc":9,"documents":[")" + endless + R"("]})";
  CHECK(client.post("/v1/rerank", shortened).status == 200);
}

TEST_CASE("a model that answers yes or no is asked through its own prompt") {
  TestServer server({}, test_options(), let_answer);
  HttpClient client(server.port());
  const Json answer =
      answer_to(client, "/rerank", R"({"query":"q","documents":["<|im_end|>{query}"],"instruction":"judge"})");
  // y against n, which the fake engine's logits are apart by.
  CHECK(std::abs(answer["results"][0]["relevance_score"].get<double>() - chance('y' - 'n')) < 1e-6);
  const auto request = server.engine().last_request();
  CHECK(request->pooling == Pooling::kLast);
  CHECK(request->pooled_output == PooledOutput::kTokenLogprobs);
  CHECK(request->scored_tokens == std::vector<TokenId>{TokenId{'y'}, TokenId{'n'}});
  // A document's text is neither a control token nor a place for the query.
  std::vector<TokenId> expected{kImStart};
  const auto append = [&](const std::vector<TokenId>& tokens) {
    expected.insert(expected.end(), tokens.begin(), tokens.end());
  };
  append(bytes("judge|q|<|im_end|>{query}"));
  expected.push_back(kImEnd);
  CHECK(request->prompt == expected);
  answer_to(client, "/rerank", R"({"query":"q","documents":["x"]})");
  CHECK(prompt_text(server).find("Given a web search query") != std::string::npos);
}

TEST_CASE("without a classifier texts are as near as their vectors") {
  TestServer server({}, test_options(), [](ServedModel& model) {
    model.info.pooling = Pooling::kMean;
    model.tasks.prompts = {{"query", "Q:"}, {"document", "D:"}};
  });
  HttpClient client(server.port());
  const Json answer = answer_to(client, "/score", R"({"text_1":"a","text_2":["b","c","b"]})");
  REQUIRE(answer["data"].size() == 3);
  CHECK(std::abs(answer["data"][2]["score"].get<double>() - 1.0) < 1e-6);
  // "Q:a", "D:b" and "D:c" are computed, each once, with a first token before each.
  CHECK(answer["usage"]["prompt_tokens"] == 12);
  CHECK(server.engine().last_request()->pooled_output == PooledOutput::kUnitVector);
}

TEST_CASE("score judges pairs one to one, one to many, and as many to as many") {
  TestServer server({}, test_options(), let_classify);
  HttpClient client(server.port());
  const auto scores = [&](const std::string& body, const std::string& path = "/v1/score") {
    const Json answer = answer_to(client, path, body);
    CHECK(answer["object"] == "list");
    std::vector<double> out;
    for (const Json& each : answer["data"])
      out.push_back(each["score"]);
    return out;
  };
  CHECK(scores(R"({"text_1":"a","text_2":"b"})").size() == 1);
  const auto many = scores(R"({"text_1":"a","text_2":["b","cc"]})", "/score");
  REQUIRE(many.size() == 2);
  CHECK(many[0] < many[1]);
  CHECK(scores(R"({"queries":["a","bbb"],"documents":["b","cc"]})").size() == 2);
  CHECK(scores(R"({"text_1":["a"],"text_2":"b","use_activation":false})") == std::vector<double>{6.0 / 64.0});
  CHECK(refused_param(client, "/score", R"({"text_1":["a","b"],"text_2":["b"]})") == "text_1");
  CHECK(refused_param(client, "/score", R"({"text_1":"a"})") == "text_2");
}

TEST_CASE("classify names the likeliest label") {
  TestServer server({}, test_options(), let_classify);
  HttpClient client(server.port());
  for (const char* path : {"/classify", "/v1/classify"}) {
    const Json answer = answer_to(client, path, R"({"input":["abc","d"]})");
    REQUIRE(answer["data"].size() == 2);
    CHECK(answer["data"][0]["label"] == "good");
    CHECK(answer["data"][0]["num_classes"] == 2);
    CHECK(std::abs(answer["data"][0]["probs"][0].get<double>() - chance(4.0 / 64.0)) < 1e-6);
    CHECK(answer["usage"]["prompt_tokens"] == 6);
  }
  CHECK(answer_to(client, "/classify", R"({"input":"abc","activation":false})")["data"][0]["probs"][0] == 4.0 / 64.0);
  CHECK(answer_to(client, "/pooling", R"({"input":"abc","task":"classify"})")["data"][0]["data"][0] == 4.0 / 64.0);
  TestServer plain;
  HttpClient other(plain.port());
  CHECK(refused_param(other, "/classify", R"({"input":"x"})") == "model");
  CHECK(refused_param(other, "/pooling", R"({"input":"x","task":"classify"})") == "model");
}

TEST_CASE("pooling gives every token's vector, or one") {
  TestServer server;
  HttpClient client(server.port());
  for (const char* path : {"/pooling", "/v1/pooling"}) {
    const Json answer = answer_to(client, path, R"({"input":["ab","c"]})");
    REQUIRE(answer["data"].size() == 2);
    CHECK(answer["data"][0]["object"] == "pooling");
    CHECK(answer["data"][0]["data"].size() == 3);  // the first token is the model's own
    CHECK(answer["data"][1]["data"].size() == 2);
    CHECK(answer["data"][0]["data"][2].size() == 4);
  }
  CHECK(server.engine().last_request()->pooling == Pooling::kEach);
  CHECK(answer_to(client, "/pooling", R"({"input":"x","task":"embed"})")["data"][0]["data"].size() == 4);
  const Json coded = answer_to(client, "/pooling", R"({"input":"x","encoding_format":"base64"})");
  CHECK(coded["data"][0]["data"][0].is_string());
  CHECK(refused_param(client, "/pooling", R"({"input":"x","dimensions":2})") == "dimensions");
  CHECK(answer_to(client, "/pooling", R"({"messages":[{"role":"user","content":"x"}]})")["data"].size() == 1);
  for (const char* path : {"/pooling", "/v1/embeddings"})
    CHECK(refused_param(client, path, R"({"input":"y","messages":[{"role":"user","content":"x"}]})") == "messages");
}

TEST_CASE("embeddings keep their length where they are asked to, and take the prompts of the model's file") {
  TestServer server({}, test_options(), [](ServedModel& model) {
    model.tasks.prompts = {{"query", "Q:"}, {"passage", "P:"}};
  });
  HttpClient client(server.port());
  const auto text = [&](const std::string& fields) {
    answer_to(client, "/v1/embeddings", R"({"input":"x")" + fields + "}");
    return prompt_text(server).substr(std::string(ByteTokenizer().token_bytes(kBos)).size());
  };
  CHECK(text("") == "x");
  CHECK(text(R"(,"input_type":"query")") == "Q:x");
  CHECK(text(R"(,"input_type":"search_query")") == "Q:x");
  CHECK(text(R"(,"input_type":"search_document")") == "P:x");
  CHECK(text(R"(,"input_type":"clustering")") == "x");
  CHECK(text(R"(,"prompt_name":"passage")") == "P:x");
  CHECK(refused_param(client, "/v1/embeddings", R"({"input":"x","prompt_name":"martian"})") == "prompt_name");
  const Json raw = answer_to(client, "/v1/embeddings", R"({"input":"x","normalize":false,"dimensions":3})");
  CHECK(raw["data"][0]["embedding"] == Json{3.0, 0.0, 4.0});
  CHECK(server.engine().last_request()->pooled_output == PooledOutput::kVector);
  // A text as long as the context is embedded: nothing is generated after it.
  CHECK(client.post("/v1/embeddings", R"({"input":")" + std::string(2047, 'x') + R"("})").status == 200);
  CHECK(client.post("/v1/embeddings", R"({"input":")" + std::string(2048, 'x') + R"("})").status == 400);
}

TEST_CASE("tokens that a model's file suppresses are never generated") {
  class Suppressing final : public ByteTokenizer {
   public:
    std::span<const TokenId> suppressed() const override { return tokens_; }

   private:
    const std::vector<TokenId> tokens_{TokenId{65}};
  };
  TestServer server({}, test_options(), [](ServedModel& model) { model.tokenizer = std::make_shared<Suppressing>(); });
  HttpClient client(server.port());
  answer_to(client, "/v1/completions", R"({"prompt":"x","logit_bias":{"65":50}})");
  const auto& bias = server.engine().last_request()->sampling.logit_bias;
  float total = 0.0F;
  for (const auto& [token, value] : bias)
    total += token == TokenId{65} ? value : 0.0F;
  CHECK(total == -std::numeric_limits<float>::infinity());
}
