#include "server/hub/file_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace quire::hub {

namespace {

constexpr std::string_view kDirectory = "safetensors";
constexpr std::string_view kPreferred[] = {"Q4_K_M", "Q8_0",   "Q4_0",   "Q5_K_M", "Q6_K", "Q4_K_S", "Q5_K_S",
                                           "Q3_K_M", "IQ4_XS", "IQ4_NL", "MXFP4",  "BF16", "F16",    "F32"};

char upper(char c) {
  return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
}

std::string uppered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), upper);
  return out;
}

std::string_view file_name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_gguf(std::string_view path) {
  return uppered(path).ends_with(".GGUF");
}

bool is_main_gguf(std::string_view path) {
  const std::string name = uppered(file_name_of(path));
  return is_gguf(path) && name.find("MMPROJ") == std::string::npos && name.find("IMATRIX") == std::string::npos;
}

// "STEM-00001-of-00003.gguf".
struct Shard {
  std::string_view stem;
  int number = 0;
  int count = 0;
};

std::optional<Shard> shard_of(std::string_view path) {
  constexpr std::string_view kForm = "-00001-of-00003.gguf";
  if (!is_gguf(path) || path.size() <= kForm.size()) return std::nullopt;
  const std::string_view end = path.substr(path.size() - kForm.size());
  if (end[0] != '-' || end.substr(6, 4) != "-of-") return std::nullopt;
  Shard shard{path.substr(0, path.size() - kForm.size())};
  const auto number = [&](std::size_t at, int& out) {
    const auto [stop, error] = std::from_chars(end.data() + at, end.data() + at + 5, out);
    return error == std::errc() && stop == end.data() + at + 5 && out > 0;
  };
  if (!number(1, shard.number) || !number(10, shard.count)) return std::nullopt;
  return shard;
}

// The words of a path between slashes, dots and hyphens, in upper case.
std::vector<std::string> words_of(std::string_view path) {
  std::vector<std::string> words(1);
  const auto shard = shard_of(path);
  for (const char c : shard ? shard->stem : path.substr(0, path.rfind('.'))) {
    if (c == '/' || c == '.' || c == '-') {
      words.emplace_back();
    } else {
      words.back() += upper(c);
    }
  }
  return words;
}

bool is_quantisation(std::string_view word) {
  for (const std::string_view plain : {"F16", "BF16", "F32", "FP16", "FP32"}) {
    if (word == plain) return true;
  }
  if (word.starts_with("MXFP4")) return true;
  const std::size_t letter = word.find('Q');
  const bool begins = letter == 0 || (letter == 1 && (word[0] == 'I' || word[0] == 'T'));
  if (!begins || word.size() < letter + 2) return false;
  return std::isdigit(static_cast<unsigned char>(word[letter + 1])) != 0;
}

bool has_word(std::string_view path, const std::string& word) {
  const auto words = words_of(path);
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Each model of GGUF files by its file, or by the first of its shards.
std::vector<std::string> gguf_models(const std::vector<std::string>& paths) {
  std::vector<std::string> models;
  for (const std::string& path : paths) {
    const auto shard = shard_of(path);
    if (is_main_gguf(path) && (!shard || shard->number == 1)) models.push_back(path);
  }
  std::sort(models.begin(), models.end());
  return models;
}

// The shortest matching name: "Q4_K_XL" does not mean "UD-Q4_K_XL" if there is a plain one.
std::optional<std::string> shortest_with(const std::vector<std::string>& models, const std::string& word) {
  std::optional<std::string> found;
  for (const std::string& path : models) {
    if (has_word(path, word) && (!found || path.size() < found->size())) found = path;
  }
  return found;
}

Result<ChosenFiles> with_shards(const std::vector<std::string>& paths, const std::string& model) {
  const auto first = shard_of(model);
  if (!first) return ChosenFiles{{model}, model};
  ChosenFiles chosen{{}, ""};
  for (int number = 1; number <= first->count; ++number) {
    const auto found = std::find_if(paths.begin(), paths.end(), [&](const std::string& path) {
      const auto shard = shard_of(path);
      return shard && shard->stem == first->stem && shard->count == first->count && shard->number == number;
    });
    if (found == paths.end()) {
      return invalid(fmt::format("shard {} of {} of '{}' is missing", number, first->count, model), "model",
                     "model_incomplete");
    }
    chosen.paths.push_back(*found);
  }
  chosen.model = chosen.paths.front();
  return chosen;
}

bool is_weight_file(std::string_view path, bool has_index) {
  if (!path.ends_with(".safetensors") || path.find('/') != std::string_view::npos) return false;
  if (has_index) return path.starts_with("model-");
  return path == "model.safetensors";
}

// Small files beside the weights: texts with a directory's configuration and tokenizer.
bool is_small_file(std::string_view path) {
  if (path == "1_Pooling/config.json") return true;
  if (path.find('/') != std::string_view::npos) return false;
  if (path.ends_with(".index.json")) return path == "model.safetensors.index.json";
  if (path.starts_with("README") || path.starts_with("LICENSE") || path == "requirements.txt") return false;
  return path.ends_with(".json") || path.ends_with(".jinja") || path.ends_with(".model") || path.ends_with(".txt");
}

bool is_directory(const std::vector<std::string>& paths) {
  const auto has = [&](std::string_view path) { return std::find(paths.begin(), paths.end(), path) != paths.end(); };
  return has("config.json") && (has("model.safetensors") || has("model.safetensors.index.json"));
}

ChosenFiles directory_files(const std::vector<std::string>& paths) {
  const bool has_index = std::find(paths.begin(), paths.end(), "model.safetensors.index.json") != paths.end();
  ChosenFiles chosen;
  for (const std::string& path : paths) {
    if (is_small_file(path)) chosen.paths.push_back(path);
  }
  for (const std::string& path : paths) {
    if (is_weight_file(path, has_index)) chosen.paths.push_back(path);
  }
  return chosen;
}

tl::unexpected<Error> no_such_choice(const std::vector<std::string>& paths, std::string_view wanted) {
  const auto choices = choices_of(paths);
  std::string list;
  for (const std::string& choice : choices)
    list += (list.empty() ? "" : ", ") + choice;
  const std::string what = wanted.empty() ? "no GGUF file, nor config.json with model.safetensors"
                                          : fmt::format("nothing that '{}' names", wanted);
  return tl::make_unexpected(Error{ErrorKind::kNotFound,
                                   fmt::format("the repository has {}{}", what, list.empty() ? "" : "; it has " + list),
                                   "model_file_not_found", "model", std::nullopt});
}

}  // namespace

std::string quantisation_of(std::string_view path) {
  const auto words = words_of(path);
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    if (is_quantisation(*word)) return *word;
  }
  return {};
}

std::vector<std::string> choices_of(const std::vector<std::string>& paths) {
  std::vector<std::string> choices;
  const auto models = gguf_models(paths);
  for (const std::string& model : models) {
    std::string choice = quantisation_of(model);
    if (choice.empty() || shortest_with(models, choice) != model) choice = model;
    choices.push_back(std::move(choice));
  }
  if (is_directory(paths)) choices.emplace_back(kDirectory);
  return choices;
}

namespace {

// The tower of a model: the file in its folder, else at the top, of the most exact usual type.
std::optional<std::string> mmproj_for(const std::vector<std::string>& paths, std::string_view model) {
  const std::string_view folder = model.substr(0, model.rfind('/') + 1);
  std::vector<std::string> found;
  for (const std::string_view place : {folder, std::string_view()}) {
    for (const std::string& path : paths) {
      const std::string_view name = file_name_of(path);
      const bool is_there = path.size() - name.size() == place.size() && path.starts_with(place);
      if (is_there && is_gguf(path) && uppered(name).find("MMPROJ") != std::string::npos) found.push_back(path);
    }
    if (!found.empty()) break;
  }
  if (found.empty()) return std::nullopt;
  std::sort(found.begin(), found.end());
  for (const char* type : {"F16", "BF16", "F32", "Q8_0"}) {
    if (auto exact = shortest_with(found, type)) return exact;
  }
  return found.front();
}

Result<ChosenFiles> choose_model(const std::vector<std::string>& paths, std::string_view wanted) {
  const auto models = gguf_models(paths);
  const std::string word = uppered(wanted);
  if (word == uppered(kDirectory) || (wanted.empty() && models.empty())) {
    if (is_directory(paths)) return directory_files(paths);
    return no_such_choice(paths, wanted);
  }
  if (is_gguf(wanted)) {
    for (const std::string& path : paths) {
      if (uppered(path) == word || uppered(file_name_of(path)) == word) return with_shards(paths, path);
    }
    return no_such_choice(paths, wanted);
  }
  if (!wanted.empty()) {
    const auto found = shortest_with(models, word);
    return found ? with_shards(paths, *found) : no_such_choice(paths, wanted);
  }
  for (const std::string_view preferred : kPreferred) {
    if (const auto found = shortest_with(models, std::string(preferred))) return with_shards(paths, *found);
  }
  return with_shards(paths, models.front());
}

}  // namespace

Result<ChosenFiles> choose_files(const std::vector<std::string>& paths, std::string_view wanted) {
  auto chosen = choose_model(paths, wanted);
  if (!chosen || !is_main_gguf(chosen->model)) return chosen;
  if (auto tower = mmproj_for(paths, chosen->model)) chosen->paths.push_back(*std::move(tower));
  return chosen;
}

}  // namespace quire::hub
