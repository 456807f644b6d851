// PDF files in requests of each API: their text, and their pages where the model sees.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "server/media/pdf/pdf_file.h"
#include "tests/server/batch/batch_folder.h"
#include "tests/server/media/picture_files.h"
#include "tests/server/pdf_files.h"
#include "tests/server/seeing_server.h"

namespace quire::test {
namespace {

const std::string kPdf = "%PDF-1.4 of the stand-ins";

ServerOptions reading(const PdfPrograms& programs) {
  ServerOptions options = test_options();
  options.media.pdf.enabled = true;
  options.media.pdf.programs = programs.folder().string();
  return options;
}

Json file_part(const std::string& bytes) {
  return {{"type", "file"}, {"file", {{"filename", "a.pdf"}, {"file_data", base64_of(bytes)}}}};
}

// A chat with these parts, or this part alone.
Json pdf_chat(const Json& parts) {
  const Json content = parts.is_array() ? parts : Json::array({parts});
  return {{"messages", {{{"role", "user"}, {"content", content}}}}};
}

std::string page(std::int32_t width) {
  return png_of(some_picture(width, 4));
}

// The error of a chat with the file.
Json refusal(HttpClient& client, const std::string& bytes = kPdf) {
  const HttpReply reply = client.post("/v1/chat/completions", pdf_chat({file_part(bytes)}).dump());
  INFO(reply.body);
  CHECK(reply.status == 400);
  return Json::parse(reply.body)["error"];
}

TEST_CASE("a server that reads no PDF files says what it lacks", "[media]") {
  {
    TestServer server(says("ok"));
    HttpClient client(server.port());
    const Json error = refusal(client);
    CHECK(error["code"] == "unsupported_content");
    CHECK(error["param"] == "messages[0].content[0].file.file_data");
    CHECK_THAT(error["message"].get<std::string>(), Catch::Contains("media.pdf.enabled"));
  }
  const PdfPrograms programs;
  SeeingServer server(reading(programs));
  CHECK_THAT(refusal(server.client)["message"].get<std::string>(), Catch::Contains("pdftotext of poppler-utils"));
  programs.write("pdftotext", "");
  CHECK_THAT(refusal(server.client)["message"].get<std::string>(), Catch::Contains("pdftoppm of poppler-utils"));
}

TEST_CASE("a model that reads text only reads a PDF file's text", "[media]") {
  const PdfPrograms programs;
  programs.write("pdftotext", "printf 'one %s\\n\\ftwo\\n\\f' \"$*\"");
  TestServer server(says("ok"), reading(programs));
  HttpClient client(server.port());
  answer_to(client, "/v1/chat/completions",
            pdf_chat({file_part(kPdf), {{"type", "text"}, {"text", "Summarize."}}}).dump());
  CHECK_THAT(prompt_text(server), Catch::Contains("user\na.pdf:\none -enc UTF-8 -l 101 - -\n\ntwo\nSummarize."));
  CHECK(server.engine().last_request()->media.empty());
}

TEST_CASE("a model that sees is shown the pages after the text", "[media]") {
  const PdfPrograms programs;
  programs.write_results("one\f\f", {page(30), page(20)});
  SeeingServer server(reading(programs));
  const std::string shown = "one<|im_start|>###<|im_end|><|im_start|>##<|im_end|>";
  const auto check_prompt = [&](const std::string& path, const Json& body) {
    answer_to(server.client, path, body.dump());
    INFO(path << " " << server.prompt());
    CHECK(server.prompt().find(shown) != std::string::npos);
    CHECK(server.request()->media.size() == 2);
  };
  check_prompt("/v1/chat/completions", pdf_chat({file_part(kPdf), {{"type", "text"}, {"text", "why?"}}}));
  CHECK(server.prompt().find(shown + "why?") != std::string::npos);
  // It is remembered: the programs do not run again.
  programs.write("pdftotext", "exit 1\n");
  const Json source = {{"type", "base64"}, {"media_type", "application/pdf"}, {"data", base64_of(kPdf)}};
  const Json document = {{"type", "document"}, {"title", "T"}, {"source", source}};
  check_prompt("/v1/messages", {{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", {document}}}}}});
  const Json call = {{"type", "tool_use"}, {"id", "t1"}, {"name", "f"}, {"input", Json::object()}};
  const Json result = {{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", Json::array({document})}};
  check_prompt("/v1/messages", {{"max_tokens", 5},
                                {"messages",
                                 {{{"role", "user"}, {"content", "read"}},
                                  {{"role", "assistant"}, {"content", Json::array({call})}},
                                  {{"role", "user"}, {"content", Json::array({result})}}}}});
  const Json part = {{"type", "input_file"}, {"filename", "a.pdf"}, {"file_data", data_url_of(kPdf)}};
  const Json input = {{{"role", "user"}, {"content", Json::array({part})}}};
  check_prompt("/v1/responses", {{"input", input}});
  CHECK(server.seen->count() == 2);
  const Json stored = answer_to(server.client, "/v1/responses", Json{{"input", input}}.dump());
  check_prompt("/v1/responses", {{"input", "and?"}, {"previous_response_id", stored["id"]}});
  const Json counted = answer_to(server.client, "/v1/responses/input_tokens", Json{{"input", input}}.dump());
  CHECK(counted["input_tokens"].get<int>() > 9);
}

TEST_CASE("a PDF file without text is read where the model sees", "[media]") {
  const PdfPrograms programs;
  programs.write_results("\f", {page(30)});
  {
    SeeingServer server(reading(programs));
    answer_to(server.client, "/v1/chat/completions", pdf_chat({file_part(kPdf)}).dump());
    CHECK(server.prompt().find("a.pdf:\n<|im_start|>###<|im_end|>") != std::string::npos);
  }
  TestServer server(says("ok"), reading(programs));
  HttpClient client(server.port());
  CHECK_THAT(refusal(client)["message"].get<std::string>(), Catch::Contains("its pages have no text"));
  Json later = pdf_chat({file_part(kPdf)});
  later["messages"].push_back({{"role", "assistant"}, {"content", "ok"}});
  later["messages"].push_back({{"role", "user"}, {"content", "and?"}});
  const HttpReply reply = client.post("/v1/chat/completions", later.dump());
  CHECK(reply.status == 200);
  CHECK(reply.fields.contains("x-quire-warning"));
}

TEST_CASE("PDF files are refused beyond their bounds, and counted", "[media]") {
  const PdfPrograms programs;
  ServerOptions options = reading(programs);
  options.media.pdf.max_pages = 2;
  options.media.pdf.max_bytes = 100'000;
  SeeingServer server(options);
  const auto code = [&](const std::string& text, const std::vector<std::string>& pages) {
    programs.write_results(text, pages);
    return refusal(server.client)["code"].get<std::string>();
  };
  CHECK(code("1\f2\f3\f", {}) == "pdf_too_large");
  CHECK(code(std::string(200'000, 'x') + "\f", {}) == "pdf_too_large");
  CHECK(code("1\f", {std::string(200'000, 'x')}) == "pdf_too_large");
  CHECK(code("", {}) == "invalid_pdf");
  CHECK(code("\xFF\f", {}) == "invalid_pdf");
  programs.write("pdftotext", "exit 3\n");
  CHECK_THAT(refusal(server.client)["message"].get<std::string>(), Catch::Contains("pdftotext ended with status 3"));
  const std::string metrics = server.client.get("/metrics").body;
  CHECK(metrics.find("quire:images_rejected_total{reason=\"size\"} 3\n") != std::string::npos);
  CHECK(metrics.find("quire:images_rejected_total{reason=\"invalid\"} 3\n") != std::string::npos);
  // Pages count among a request's pictures.
  options.media.max_per_request = 1;
  SeeingServer strict(options);
  programs.write_results("1\f2\f", {page(10), page(20)});
  CHECK(refusal(strict.client)["code"] == "too_many_images");
}

TEST_CASE("an uploaded PDF file is named by its id", "[media]") {
  const BatchFolder folder;
  const PdfPrograms programs;
  programs.write_results("uploaded\f", {page(30)});
  ServerOptions options = reading(programs);
  options.batches = folder.options;
  SeeingServer server(options);
  const std::string form =
      "--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n"
      "--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.pdf\"\r\n\r\n" +
      kPdf + "\r\n--edge--\r\n";
  server.client.send(
      "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=edge\r\n"
      "Content-Length: " +
      std::to_string(form.size()) + "\r\n\r\n" + form);
  const HttpReply uploaded = server.client.receive();
  REQUIRE(uploaded.status == 200);
  const Json id = Json::parse(uploaded.body)["id"];
  const std::string shown = "uploaded<|im_start|>###<|im_end|>";
  const Json part = {{"type", "input_file"}, {"file_id", id}};
  const Json input = {{{"role", "user"}, {"content", Json::array({part})}}};
  answer_to(server.client, "/v1/responses", Json{{"input", input}}.dump());
  CHECK(server.prompt().find(shown) != std::string::npos);
  answer_to(server.client, "/v1/chat/completions", pdf_chat({{{"type", "file"}, {"file", {{"file_id", id}}}}}).dump());
  CHECK(server.prompt().find(shown) != std::string::npos);
  const Json document = {{"type", "document"}, {"source", {{"type", "file"}, {"file_id", id}}}};
  answer_to(server.client, "/v1/messages",
            Json{{"max_tokens", 5}, {"messages", {{{"role", "user"}, {"content", {document}}}}}}.dump());
  CHECK(server.prompt().find(shown) != std::string::npos);
}

TEST_CASE("the programs end when their client leaves", "[media]") {
  const PdfPrograms programs;
  const std::string line = (programs.folder() / "line").string();
  REQUIRE(::mkfifo(line.c_str(), 0600) == 0);
  // The program holds the other end as long as it runs.
  programs.write("pdftotext", "exec 4> " + line + "\nwhile :; do :; done\n");
  ServerOptions options = reading(programs);
  options.media.pdf.max_time = std::chrono::hours(1);
  TestServer server(says("ok"), options);
  HttpClient client(server.port());
  const std::string body = pdf_chat({file_part(kPdf)}).dump();
  client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const int end = ::open(line.c_str(), O_RDONLY);
  REQUIRE(end >= 0);
  client.close();
  char none = 0;
  CHECK(::read(end, &none, 1) == 0);
  ::close(end);
}

TEST_CASE("the installed programs read a PDF file", "[media]") {
  PdfOptions options;
  options.enabled = true;
  if (const auto able = check_pdf(options, true); !able) {
    WARN("skipped: a real PDF file: " << able.error().message);
    return;
  }
  const auto content = read_pdf(pdf_of({"First words", "Second words"}), options, true, [] { return false; });
  REQUIRE(content);
  CHECK_THAT(content->text, Catch::Contains("First words") && Catch::Contains("Second words"));
  REQUIRE(content->pages.size() == 2);
  for (const auto& drawn : content->pages)
    CHECK(drawn->starts_with("\x89PNG"));
  CHECK(read_pdf("%PDF-1.4 and no more", options, true, [] { return false; }).error().code == kBrokenPdf);
}

}  // namespace
}  // namespace quire::test
