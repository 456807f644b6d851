#include <algorithm>

#include "config/key_types.h"
#include "config/keys.h"

namespace quire {

namespace types = config_types;

namespace {

constexpr types::Range kSomeMedia{1};
constexpr types::Range kAnyMedia{0};
constexpr types::Range kSomeMediaBytes{1, std::numeric_limits<std::int64_t>::max()};

MediaOptions& media_of(Config& config) {
  return config.serve.server.media;
}

// The images of vLLM's {"image": 2, "video": 0}, {"image": {"count": 2}} or image=2,video=0; else the value as it is.
ConfigValue images_of(const ConfigValue& value) {
  ConfigValue map = value;
  if (value.kind == ConfigValue::Kind::kScalar && value.text.starts_with('{'))
    map = read_yaml(value.text, "media.max_per_request");
  else if (value.kind == ConfigValue::Kind::kScalar && value.text.find('=') != std::string::npos)
    map = types::mapping_of_flag(value.text);
  for (const char* const name : {"image", "count"}) {
    const auto found = std::ranges::find(map.members, name, &ConfigMember::name);
    if (found != map.members.end()) map = ConfigValue(found->value);
  }
  return map;
}

ConfigKey per_request() {
  ConfigKey key = types::integer<std::int64_t>(
      {"media.max_per_request",
       "Images of one request. vLLM's forms are read as well, image=N or a mapping with 'image'; other kinds of media "
       "are not served",
       {"--limit-mm-per-prompt"}},
      [](Config & c) -> auto& { return media_of(c).max_per_request; }, kAnyMedia);
  key.set = [set = key.set](Config& config, const ConfigValue& value) { return set(config, images_of(value)); };
  return key;
}

}  // namespace

std::vector<ConfigKey> pdf_keys() {
  return {
      types::boolean(
          {"media.pdf.enabled",
           "Whether PDF files are read: pdftotext and pdftoppm (poppler-utils) run in processes of their own, within "
           "the bounds below"},
          [](Config & c) -> auto& { return media_of(c).pdf.enabled; }),
      types::text(
          {"media.pdf.programs", "The folder of the two programs; empty: those of PATH"},
          [](Config & c) -> auto& { return media_of(c).pdf.programs; }),
      types::integer<std::int64_t>({"media.pdf.max_pages", "Pages of one file; a longer one is refused"},
                                   [](Config & c) -> auto& { return media_of(c).pdf.max_pages; }, {1, 10'000}),
      types::size(
          {"media.pdf.max_bytes", "Text and images made of one file"},
          [](Config & c) -> auto& { return media_of(c).pdf.max_bytes; }, kSomeMediaBytes),
      types::duration(
          {"media.pdf.max_time", "The longest time to read one file"},
          [](Config & c) -> auto& { return media_of(c).pdf.max_time; }),
      types::size(
          {"media.pdf.memory", "Address space of each program"},
          [](Config & c) -> auto& { return media_of(c).pdf.memory; }, kSomeMediaBytes),
  };
}

std::vector<ConfigKey> media_keys() {
  return {
      types::integer<std::int32_t>({"media.threads", "Threads that fetch, decode and resize images"},
                                   [](Config & c) -> auto& { return media_of(c).threads; }, {1, 1024}),
      types::size(
          {"media.max_file_bytes", "The largest file of an image or document"},
          [](Config & c) -> auto& { return media_of(c).max_file_bytes; }, kSomeMediaBytes),
      types::integer<std::int64_t>(
          {"media.max_pixels", "Pixels of one image; a larger one is refused before it is decoded"},
          [](Config & c) -> auto& { return media_of(c).max_pixels; }, {1, std::int64_t{1} << 30}),
      per_request(),
      types::duration(
          {"media.max_decode_time", "The longest time to decode one image"},
          [](Config & c) -> auto& { return media_of(c).max_decode_time; }),
      types::integer<std::int64_t>(
          {"media.max_waiting", "Images that wait for a thread; requests with further ones get 503"},
          [](Config & c) -> auto& { return media_of(c).max_waiting; }, kSomeMedia),
      types::integer<std::int64_t>(
          {"media.max_waiting_per_key",
           "The same for the images of one API key, or of one address without keys; further ones get 429"},
          [](Config & c) -> auto& { return media_of(c).max_waiting_per_key; }, kSomeMedia),
      types::size(
          {"media.memory",
           "Memory for decoded images and read PDF files: those of requests under way, and the most recently used "
           "others, so that the next turn of a conversation decodes nothing"},
          [](Config & c) -> auto& { return media_of(c).memory; }, kSomeMediaBytes),
      types::texts(
          {"media.fetch",
           "Hosts whose http and https URLs are fetched, each HOST or HOST:PORT; empty: no URL is fetched. An address "
           "in "
           "a private network is reached only if it is listed by its digits"},
          [](Config & c) -> auto& { return media_of(c).fetch; }),
      types::duration(
          {"media.fetch_time", "The longest time to fetch one image"},
          [](Config & c) -> auto& { return media_of(c).fetch_time; }),
      types::text(
          {"media.root", "The folder whose files requests may name by file:// URLs; empty: none"},
          [](Config & c) -> auto& { return media_of(c).root; }),
  };
}

}  // namespace quire
