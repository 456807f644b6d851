// Pictures in requests of each API, before a model that sees: each becomes as many rows as its width has tens, between
// two control tokens.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "server/media/media_sight.h"
#include "server/media/media_store.h"
#include "tests/server/batch/batch_folder.h"
#include "tests/server/media/picture_files.h"
#include "tests/server/seeing_server.h"

namespace quire::test {
namespace {

// A piece has a row for each pixel of `min_pixels`.
std::shared_ptr<const MediaSight> sight_of_settings() {
  auto sight = std::make_shared<MediaSight>(*sight_for(std::make_shared<Seen>()));
  sight->layout = [](std::int32_t, std::int32_t, const PictureSettings& settings) {
    const std::int64_t rows = settings.min_pixels.value_or(1);
    return MediaLayout{{{"", rows, static_cast<std::int32_t>(rows), 1, rows}}, rows};
  };
  return sight;
}

const std::string kPng = png_of(some_picture(30, 4));
const std::string kOtherPng = png_of(some_picture(20, 4));

Json image_part(const std::string& bytes, const std::string& detail = "auto") {
  return {{"type", "image_url"}, {"image_url", {{"url", data_url_of(bytes)}, {"detail", detail}}}};
}

Json chat_of(Json parts) {
  return {{"messages", {{{"role", "user"}, {"content", std::move(parts)}}}}};
}

TEST_CASE("a chat's pictures become rows at their places", "[media]") {
  SeeingServer server;
  const Json body = chat_of({{{"type", "text"}, {"text", "see"}},
                             image_part(kPng),
                             {{"type", "text"}, {"text", "and"}},
                             {{"type", "text"}, {"text", "this"}},
                             image_part(kOtherPng)});
  const Json answer = answer_to(server.client, "/v1/chat/completions", body.dump());
  CHECK(server.prompt().find("user\nsee<|im_start|>###<|im_end|>and\nthis<|im_start|>##<|im_end|><|im_end|>") !=
        std::string::npos);
  const auto request = server.request();
  REQUIRE(request->media.size() == 2);
  CHECK(request->media[0].num_rows == 3);
  CHECK(request->media[0].media != nullptr);
  CHECK(request->prompt[static_cast<std::size_t>(request->media[0].begin)].value == -1);
  CHECK(request->prompt[static_cast<std::size_t>(request->media[0].begin) + 2].value == -3);
  CHECK(request->media[0].key != request->media[1].key);
  CHECK(answer["usage"]["prompt_tokens"] == request->prompt.size());
  CHECK(server.seen->count() == 2);
  // The second turn decodes nothing.
  answer_to(server.client, "/v1/chat/completions", body.dump());
  CHECK(server.seen->count() == 2);
  CHECK(server.request()->media[0].key == request->media[0].key);
}

TEST_CASE("a client cannot write what stands for a picture", "[media]") {
  SeeingServer server;
  answer_to(server.client, "/v1/chat/completions",
            chat_of({image_part(kPng), {{"type", "text"}, {"text", "QuireMediax0e <__media__>"}}}).dump());
  CHECK(server.prompt().find("<|im_end|>QuireMediax0e <__media__>") != std::string::npos);
  CHECK(server.request()->media.size() == 1);
}

TEST_CASE("detail and pixels are settings of a picture", "[media]") {
  SeeingServer server;
  Json body = chat_of({image_part(kPng, "low")});
  body["mm_processor_kwargs"] = {{"min_pixels", 10}, {"max_pixels", 400}};
  answer_to(server.client, "/v1/chat/completions", body.dump());
  CHECK(server.request()->media[0].num_rows == 1);
  REQUIRE(server.seen->count() == 1);
  const PictureSettings settings = server.seen->pictures[0].second;
  CHECK(settings.detail == PictureSettings::Detail::kLow);
  CHECK(settings.min_pixels == 10);
  CHECK(settings.max_pixels == 400);
  const MediaKey key = server.request()->media[0].key;
  body["mm_processor_kwargs"]["max_pixels"] = 500;
  answer_to(server.client, "/v1/chat/completions", body.dump());
  CHECK(server.request()->media[0].key != key);
  const auto refused = [&](const Json& wrong) {
    return refused_param(server.client, "/v1/chat/completions", wrong.dump());
  };
  CHECK(refused(chat_of({image_part(kPng, "tiny")})) == "messages[0].content[0].image_url.detail");
  body["mm_processor_kwargs"] = {{"fps", 2}};
  CHECK(refused(body) == "mm_processor_kwargs.fps");
  body["mm_processor_kwargs"] = {{"size", {{"depth", 2}}}};
  CHECK(refused(body) == "mm_processor_kwargs.size.depth");
  body["mm_processor_kwargs"] = {{"size", {{"height", 20}, {"width", 20}}}};
  CHECK(refused(body) == "mm_processor_kwargs.size.height");
  body["mm_processor_kwargs"] = {{"max_pixels", 400}, {"size", {{"longest_edge", 500}}}};
  CHECK(refused(body) == "mm_processor_kwargs.size.longest_edge");
  body["mm_processor_kwargs"] = {{"size", {{"shortest_edge", 5}, {"longest_edge", 4}}}};
  CHECK(refused(body) == "mm_processor_kwargs.min_pixels");
  body["mm_processor_kwargs"] = {{"min_pixels", 5}, {"max_pixels", 4}};
  CHECK(refused(body) == "mm_processor_kwargs.min_pixels");
  body = chat_of({image_part(kPng)});
  body["prompt_logprobs"] = 1;
  CHECK(refused(body) == "prompt_logprobs");
}

TEST_CASE("sizes of processors are limits of pixels, or the model's own size", "[media]") {
  SeeingServer server;
  Json body = chat_of({image_part(kPng)});
  body["mm_processor_kwargs"] = {{"size", {{"shortest_edge", 10}, {"longest_edge", 400}}}};
  answer_to(server.client, "/v1/chat/completions", body.dump());
  const MediaKey key = server.request()->media[0].key;
  body["mm_processor_kwargs"] = {{"min_pixels", 10}, {"max_pixels", 400}};
  answer_to(server.client, "/v1/chat/completions", body.dump());
  CHECK(server.request()->media[0].key == key);
  CHECK(server.seen->count() == 1);

  TestServer fixed(says("ok"), test_options(), [](ServedModel& model) {
    auto sight = std::make_shared<MediaSight>(*sight_of_settings());
    sight->own_side = 20;
    model.sight = std::move(sight);
  });
  HttpClient client(fixed.port());
  body["mm_processor_kwargs"] = {{"size", {{"height", 20}, {"width", 20}}}};
  CHECK(client.post("/v1/chat/completions", body.dump()).fields.count("x-quire-warning") == 0);
  body["mm_processor_kwargs"]["size"]["width"] = 30;
  CHECK(refused_param(client, "/v1/chat/completions", body.dump()) == "mm_processor_kwargs.size.width");
  body["mm_processor_kwargs"] = {{"max_pixels", 400}};
  const HttpReply reply = client.post("/v1/chat/completions", body.dump());
  CHECK(reply.status == 200);
  CHECK(reply.fields.contains("x-quire-warning"));
}

TEST_CASE("pictures that cannot be read are refused by name", "[media]") {
  SeeingServer server;
  const auto code_of = [&](const Json& part) {
    const HttpReply reply = server.client.post("/v1/chat/completions", chat_of({part}).dump());
    CHECK(reply.status == 400);
    const Json error = Json::parse(reply.body)["error"];
    CHECK(error["param"].get<std::string>().starts_with("messages[0].content[0]"));
    return error["code"].get<std::string>();
  };
  const auto with_url = [](const std::string& url) {
    return Json{{"type", "image_url"}, {"image_url", {{"url", url}}}};
  };
  CHECK(code_of(image_part("%PDF-1.7 and so on")) == "unsupported_image_format");
  CHECK(code_of(image_part(kPng.substr(0, kPng.size() / 2))) == "invalid_image");
  CHECK(code_of(with_url("data:image/png;base64,****")) == "invalid_base64");
  CHECK(code_of(with_url("data:image/png;base64")) == "invalid_url");
  CHECK(code_of(with_url("ftp://example.com/a.png")) == "invalid_url");
  CHECK(code_of(with_url("https://example.com/a.png")) == "image_url_not_allowed");
  CHECK(code_of(with_url("file:///etc/passwd")) == "image_url_not_allowed");
  CHECK(code_of({{"type", "image_url"}, {"image_url", Json::object()}}) == "missing_required_parameter");
  CHECK(code_of({{"type", "input_audio"}, {"input_audio", Json::object()}}) == "unsupported_content");
  const Json audio = chat_of({{{"type", "input_audio"}, {"input_audio", Json::object()}}});
  CHECK(server.client.post("/v1/chat/completions", audio.dump()).body.find("reads text, and images") !=
        std::string::npos);
  CHECK(server.seen->count() == 0);
  CHECK(server.client.get("/metrics").body.find("quire:images_rejected_total{reason=\"invalid\"} 4\n") !=
        std::string::npos);
  // Data may be written with line breaks, without padding, and in the alphabet of URLs.
  std::string loose = base64_of(kPng);
  loose.insert(20, "\r\n ");
  loose.erase(loose.find_last_not_of('=') + 1);
  for (char& c : loose)
    c = c == '+' ? '-' : c == '/' ? '_' : c;
  answer_to(server.client, "/v1/chat/completions",
            chat_of({with_url("DATA:image/png;charset=x;BASE64," + loose)}).dump());
}

TEST_CASE("pictures are bounded in bytes, pixels and number", "[media]") {
  ServerOptions options = test_options();
  options.media.max_pixels = 100;
  options.media.max_per_request = 2;
  options.media.max_file_bytes = 2000;
  SeeingServer server(options);
  const auto code_of = [&](const Json& parts) {
    return Json::parse(server.client.post("/v1/chat/completions", chat_of(parts).dump()).body)["error"]["code"];
  };
  CHECK(code_of(Json::array({image_part(kPng)})) == "image_too_large");
  CHECK(code_of(Json::array({image_part(std::string(3000, 'x'))})) == "image_too_large");
  const Json small = image_part(png_of(some_picture(10, 1)));
  CHECK(code_of({small, small, small}) == "too_many_images");
  const HttpReply third = server.client.post("/v1/chat/completions", chat_of({small, small, small}).dump());
  CHECK(third.body.find("At most 2 image(s) may be provided in one prompt.") != std::string::npos);
  CHECK(server.client.post("/v1/chat/completions", chat_of({small, small}).dump()).status == 200);
  CHECK(server.seen->count() == 1);  // both parts are the same picture
}

TEST_CASE("a picture of more tokens than the context is refused before it is decoded", "[media]") {
  TestServer server(says("ok"), test_options(), [](ServedModel& model) { model.sight = sight_of_settings(); });
  HttpClient client(server.port());
  Json body = chat_of({image_part(kPng)});
  const auto code_of = [&] {
    return Json::parse(client.post("/v1/chat/completions", body.dump()).body)["error"]["code"].get<std::string>();
  };
  // Rows of the fake model: as many as 'min_pixels'.
  body["mm_processor_kwargs"] = {{"min_pixels", 60'000'000}};
  CHECK(code_of() == "context_length_exceeded");
  body["mm_processor_kwargs"] = {{"min_pixels", 70'000'000}};  // more than media.max_pixels
  CHECK(code_of() == "invalid_value");
  body["mm_processor_kwargs"] = {{"min_pixels", 2}, {"max_pixels", std::int64_t{1} << 36}};
  answer_to(client, "/v1/chat/completions", body.dump());
  CHECK(server.engine().last_request()->media[0].num_rows == 2);
}

TEST_CASE("a picture that a client has named need not be sent again", "[media]") {
  SeeingServer server;
  Json part = image_part(kPng);
  part["uuid"] = "cat";
  answer_to(server.client, "/v1/chat/completions", chat_of({part}).dump());
  const MediaKey key = server.request()->media[0].key;
  const Json named = {{"type", "image_url"}, {"image_url", nullptr}, {"uuid", "cat"}};
  answer_to(server.client, "/v1/chat/completions", chat_of({named}).dump());
  CHECK(server.request()->media[0].key == key);
  CHECK(server.seen->count() == 1);
  const Json other = {{"type", "image_url"}, {"image_url", nullptr}, {"uuid", "dog"}};
  const HttpReply reply = server.client.post("/v1/chat/completions", chat_of({other}).dump());
  CHECK(Json::parse(reply.body)["error"]["code"] == "image_not_remembered");
}

TEST_CASE("other APIs take pictures in their own forms", "[media]") {
  SeeingServer server;
  const std::string data = base64_of(kPng);
  const auto check_prompt = [&](const std::string& path, const Json& body, const std::string& text) {
    answer_to(server.client, path, body.dump());
    INFO(path << " " << server.prompt());
    CHECK(server.prompt().find(text) != std::string::npos);
    CHECK(server.request()->media.size() == 1);
  };
  const std::string shown = "<|im_start|>###<|im_end|>";
  const Json source = {{"type", "base64"}, {"media_type", "image/png"}, {"data", data}};
  const Json block = {{"type", "image"}, {"source", source}};
  check_prompt(
      "/v1/messages",
      {{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", {block, {{"type", "text"}, {"text", "x"}}}}}}}},
      shown + "x");
  check_prompt(
      "/v1/messages",
      {{"max_tokens", 5},
       {"messages",
        {{{"role", "user"}, {"content", "look"}},
         {{"role", "assistant"},
          {"content", {{{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", Json::object()}}}}},
         {{"role", "user"},
          {"content", {{{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", Json::array({block})}}}}}}}},
      shown);
  // Parts of the other APIs, with white space around the URL.
  const Json part = {{"type", "image_url"}, {"image_url", {{"url", " " + data_url_of(kPng) + "\n"}}}};
  check_prompt("/v1/messages",
               {{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", Json::array({part})}}}}}, shown);
  check_prompt("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", Json::array({part})}}}}}, shown);
  const Json input = {{{"role", "user"},
                       {"content",
                        {{{"type", "input_text"}, {"text", "x"}},
                         {{"type", "input_image"}, {"image_url", data_url_of(kPng)}, {"detail", "high"}}}}}};
  check_prompt("/v1/responses", {{"input", input}}, "x" + shown);
  const Json seen = {{{"role", "user"}, {"content", "x"}, {"images", {data}}}};
  check_prompt("/api/chat", {{"messages", seen}, {"stream", false}}, shown + "x");
  check_prompt("/api/generate", {{"prompt", "x"}, {"images", {data}}, {"stream", false}}, shown + "x");
  check_prompt("/completion", {{"prompt", {{"prompt_string", "a<__media__>b"}, {"multimodal_data", {data}}}}},
               "a" + shown + "b");
  CHECK(server.seen->count() == 2);  // detail: high is another preparation
  CHECK(refused_param(server.client, "/completion",
                      Json{{"prompt", {{"prompt_string", "ab"}, {"multimodal_data", {data}}}}}.dump()) ==
        "prompt.multimodal_data");
}

TEST_CASE("documents and results of tools have pictures in their content", "[media]") {
  SeeingServer server;
  const auto picture = [](const std::string& bytes) {
    return Json{{"type", "image"},
                {"source", {{"type", "base64"}, {"media_type", "image/png"}, {"data", base64_of(bytes)}}}};
  };
  const auto words = [](const char* text) { return Json{{"type", "text"}, {"text", text}}; };
  const Json content = {{"type", "content"}, {"content", {words("see"), picture(kPng), words("so")}}};
  const Json document = {{"type", "document"}, {"title", "D"}, {"source", content}};
  const Json call = {{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", Json::object()}};
  const Json result = {{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", {document, picture(kOtherPng)}}};
  const Json turns = {{{"role", "user"}, {"content", Json::array({document})}},
                      {{"role", "assistant"}, {"content", Json::array({call})}},
                      {{"role", "user"}, {"content", Json::array({result})}}};
  answer_to(server.client, "/v1/messages", Json{{"max_tokens", 5}, {"messages", turns}}.dump());
  const std::string shown = "D\nsee<|im_start|>###<|im_end|>so";
  const std::string prompt = server.prompt();
  INFO(prompt);
  CHECK(prompt.find(shown + "<|im_end|>") != std::string::npos);
  CHECK(prompt.find(shown + "<|im_start|>##<|im_end|>") != std::string::npos);
  REQUIRE(server.request()->media.size() == 3);
  CHECK(server.request()->media[0].key == server.request()->media[1].key);
  // A system prompt has no place for them.
  const Json system = {{"max_tokens", 5}, {"system", Json::array({document})}, {"messages", turns}};
  CHECK(server.client.post("/v1/messages", system.dump()).status == 400);
  const Json output = {{{"role", "user"}, {"content", "look"}},
                       {{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{}"}},
                       {{"type", "function_call_output"},
                        {"call_id", "c"},
                        {"output", {{{"type", "input_image"}, {"image_url", data_url_of(kPng)}}}}}};
  answer_to(server.client, "/v1/responses", Json{{"input", output}}.dump());
  CHECK(server.request()->media.size() == 1);
}

TEST_CASE("a stored response's pictures are there in the next one", "[media]") {
  SeeingServer server;
  const Json input = {{{"role", "user"}, {"content", {{{"type", "input_image"}, {"image_url", data_url_of(kPng)}}}}}};
  const Json first = answer_to(server.client, "/v1/responses", Json{{"input", input}}.dump());
  const Json body = {{"input", "and now?"}, {"previous_response_id", first["id"]}};
  answer_to(server.client, "/v1/responses", body.dump());
  CHECK(server.prompt().find("<|im_start|>###<|im_end|>") != std::string::npos);
  CHECK(server.seen->count() == 1);
}

TEST_CASE("pictures at the same place of several items stay apart", "[media]") {
  SeeingServer server;
  const auto item = [](const std::string& bytes) {
    return Json{{"role", "user"}, {"content", {{{"type", "input_image"}, {"image_url", data_url_of(bytes)}}}}};
  };
  const Json first = {{"input", {item(kPng), item(kOtherPng)}}};
  const Json stored = answer_to(server.client, "/v1/responses", first.dump());
  answer_to(server.client, "/v1/responses", Json{{"input", "which?"}, {"previous_response_id", stored["id"]}}.dump());
  CHECK(server.prompt().find("<|im_start|>###<|im_end|>") != std::string::npos);
  CHECK(server.prompt().find("<|im_start|>##<|im_end|>") != std::string::npos);
}

TEST_CASE("counting endpoints count pictures and prepare none", "[media]") {
  SeeingServer server;
  const Json chat = chat_of({image_part(kPng)});
  const Json plain = chat_of({{{"type", "text"}, {"text", ""}}});
  const auto count = [&](const std::string& path, const Json& body, const std::string& member) {
    return answer_to(server.client, path, body.dump())[member];
  };
  // Three rows between two control tokens.
  CHECK(count("/tokenize", chat, "count").get<int>() == count("/tokenize", plain, "count").get<int>() + 5);
  const Json rendered = answer_to(server.client, "/v1/chat/completions/render", chat.dump());
  CHECK(rendered["mm_placeholders"][0]["length"] == 3);
  CHECK(answer_to(server.client, "/apply-template", chat.dump())["prompt"].get<std::string>().find("<__media__>") !=
        std::string::npos);
  const Json block = {{"type", "image"}, {"source", {{"type", "base64"}, {"data", base64_of(kPng)}}}};
  const Json messages = {{"messages", {{{"role", "user"}, {"content", Json::array({block})}}}}};
  CHECK(count("/v1/messages/count_tokens", messages, "input_tokens").get<int>() > 5);
  const Json input = {{{"role", "user"}, {"content", {{{"type", "input_image"}, {"image_url", data_url_of(kPng)}}}}}};
  CHECK(count("/v1/responses/input_tokens", {{"input", input}}, "input_tokens").get<int>() > 5);
  CHECK(server.seen->count() == 0);
}

TEST_CASE("a model that reads text only keeps a conversation that has pictures", "[media]") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  CHECK(refused_param(client, "/v1/chat/completions", chat_of({image_part(kPng)}).dump()) ==
        "messages[0].content[0].type");
  Json body = chat_of({image_part(kPng)});
  body["messages"].push_back({{"role", "assistant"}, {"content", "a cat"}});
  body["messages"].push_back({{"role", "user"}, {"content", "and now?"}});
  const HttpReply reply = client.post("/v1/chat/completions", body.dump());
  CHECK(reply.status == 200);
  CHECK(reply.fields.at("x-quire-warning").find("messages[0].content[0]") != std::string::npos);
  CHECK(prompt_text(server).find("[an image was left out: this model reads text only]") != std::string::npos);
}

TEST_CASE("files of text are read as text", "[media]") {
  TestServer server(says("ok"));
  HttpClient client(server.port());
  const auto file = [](const std::string& bytes) {
    return chat_of({{{"type", "file"},
                     {"file", {{"filename", "a.txt"}, {"file_data", "data:text/plain;base64," + base64_of(bytes)}}}}});
  };
  answer_to(client, "/v1/chat/completions", file("words of it").dump());
  CHECK(prompt_text(server).find("a.txt:\nwords of it") != std::string::npos);
  const Json item = {{"type", "input_file"},
                     {"filename", "b.txt"},
                     {"file_data", "data:text/plain;base64," + base64_of("words of an item")}};
  answer_to(client, "/v1/responses", Json{{"input", {{{"role", "user"}, {"content", Json::array({item})}}}}}.dump());
  CHECK(prompt_text(server).find("b.txt:\nwords of an item") != std::string::npos);
  CHECK(refused_param(client, "/v1/chat/completions", file("%PDF-1.4").dump()) ==
        "messages[0].content[0].file.file_data");
  CHECK(refused_param(client, "/v1/chat/completions", file(kPng).dump()) == "messages[0].content[0].file.file_data");
}

TEST_CASE("an uploaded file is a picture by its id, for its owner's requests", "[media]") {
  const BatchFolder folder;
  ServerOptions options = test_options();
  options.batches = folder.options;
  SeeingServer server(options);
  const std::string form =
      "--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nvision\r\n"
      "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\r\n" +
      kPng + "\r\n--edge--\r\n";
  server.client.send(
      "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=edge\r\n"
      "Content-Length: " +
      std::to_string(form.size()) + "\r\n\r\n" + form);
  const HttpReply uploaded = server.client.receive();
  INFO(uploaded.body);
  REQUIRE(uploaded.status == 200);
  const auto body = [](const Json& id) {
    return Json{{"input", {{{"role", "user"}, {"content", {{{"type", "input_image"}, {"file_id", id}}}}}}}}.dump();
  };
  const std::string id = Json::parse(uploaded.body)["id"];
  const Json first = answer_to(server.client, "/v1/responses", body(id));
  CHECK(server.request()->media.size() == 1);
  const HttpReply absent = server.client.post("/v1/responses", body("file-absent"));
  CHECK(absent.status == 404);
  CHECK(Json::parse(absent.body)["error"]["param"] == "input[0].content[0]");

  // A conversation outlives the files in it.
  server.client.send("DELETE /v1/files/" + id + " HTTP/1.1\r\nHost: x\r\n\r\n");
  REQUIRE(server.client.receive().status == 200);
  const Json next = {{"input", "and now?"}, {"previous_response_id", first["id"]}};
  const HttpReply later = server.client.post("/v1/responses", next.dump());
  INFO(later.body);
  CHECK(later.status == 200);
  CHECK(later.fields.at("x-quire-warning").find(id) != std::string::npos);
  CHECK(server.request()->media.empty());
  CHECK(server.prompt().find("[a file was left out: it was deleted or has expired]") != std::string::npos);
  const Json text = {{"type", "input_file"}, {"file_id", id}};
  Json turns = {{"input", {{{"role", "user"}, {"content", {text}}}, {{"role", "user"}, {"content", "and now?"}}}}};
  CHECK(server.client.post("/v1/responses", turns.dump()).status == 200);
  turns["input"].erase(1);
  CHECK(server.client.post("/v1/responses", turns.dump()).status == 404);
}

TEST_CASE("pictures beyond the queue of media threads are refused, and counted", "[media]") {
  ServerOptions options = test_options();
  options.media.max_waiting = 1;
  SeeingServer server(options);
  const HttpReply full =
      server.client.post("/v1/chat/completions", chat_of({image_part(kPng), image_part(kOtherPng)}).dump());
  CHECK(full.status == 503);
  CHECK(full.fields.contains("retry-after"));
  answer_to(server.client, "/v1/chat/completions", chat_of({image_part(kPng)}).dump());
  server.client.post("/v1/chat/completions", chat_of({image_part("GIF")}).dump());
  const std::string metrics = server.client.get("/metrics").body;
  for (const char* line :
       {"quire:images_total 1\n", "quire:images_rejected_total{reason=\"overload\"} 1\n",
        "quire:images_rejected_total{reason=\"format\"} 1\n", "quire:image_cache_hits_total{level=\"decoded\"} 0\n",
        "vllm:mm_cache_queries_total 1\n", "vllm:mm_cache_hits_total 0\n"})
    CHECK(metrics.find(line) != std::string::npos);
}

TEST_CASE("prepared pictures stay within their memory", "[media]") {
  MediaStore store(2500);
  const auto piece = [] { return std::make_shared<const FakePiece>(); };
  auto first = store.add("s", {1, 1}, piece(), 1000);
  REQUIRE(first);
  REQUIRE(store.add("s", {2, 2}, piece(), 1000));
  CHECK(store.find("s", {2, 2}) != nullptr);
  CHECK(store.find("t", {2, 2}) == nullptr);
  REQUIRE(store.add("s", {3, 3}, piece(), 1000));  // evicts what nothing holds
  CHECK(store.find("s", {2, 2}) == nullptr);
  CHECK(store.find("s", {1, 1}) == *first);
  auto third = store.find("s", {3, 3});
  CHECK(store.add("s", {4, 4}, piece(), 1000).error().kind == ErrorKind::kUnavailable);
  third.reset();
  CHECK(store.add("s", {4, 4}, piece(), 1000));
  CHECK(store.stats().num_bytes == 2000);
}

TEST_CASE("files below the media root are read, and no others", "[media]") {
  const BatchFolder folder;
  const std::filesystem::path root = folder.path / "root";
  std::filesystem::create_directories(root);
  std::ofstream(root / "a b.png", std::ios::binary) << kPng;
  std::ofstream(root.parent_path() / "secret.png", std::ios::binary) << kPng;
  std::filesystem::create_symlink(root.parent_path() / "secret.png", root / "link.png");
  ServerOptions options = test_options();
  options.media.root = root.string();
  SeeingServer server(options);
  const auto ask = [&](const std::string& path) {
    const Json part = {{"type", "image_url"}, {"image_url", {{"url", "file://" + path}}}};
    return server.client.post("/v1/chat/completions", chat_of({part}).dump()).status;
  };
  CHECK(ask(root.string() + "/a%20b.png") == 200);
  CHECK(ask(root.string() + "/../secret.png") == 400);
  CHECK(ask(root.string() + "/link.png") == 400);
  CHECK(ask(root.string()) == 400);
  CHECK(ask("/etc/passwd") == 400);
}

}  // namespace
}  // namespace quire::test
