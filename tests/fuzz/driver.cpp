// Runs a fuzz target over its corpus and over seeded mutations of it: driver CORPUS_FOLDER. A single file instead of a
// folder is replayed alone. An input that ends the process is left in fuzz-crash.bin in the working directory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/mutator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using quire::fuzz::Input;

constexpr std::size_t kDefaultRuns = 10000;
constexpr std::uint64_t kSeed = 20240611;

const Input* current_input = nullptr;  // read by the signal handler alone

void save_current_input(int signal) {
  const int file = ::open("fuzz-crash.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file >= 0 && current_input != nullptr) {
    [[maybe_unused]] const auto written = ::write(file, current_input->data(), current_input->size());
    ::close(file);
  }
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Input read_input(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return {text.begin(), text.end()};
}

std::vector<Input> read_corpus(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return {read_input(path)};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<Input> corpus;
  for (const auto& file : files)
    corpus.push_back(read_input(file));
  return corpus;
}

void run(const Input& input) {
  current_input = &input;
  LLVMFuzzerTestOneInput(input.data(), input.size());
  current_input = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::exists(argv[1])) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER_OR_FILE\n", argv[0]);
    return 2;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, save_current_input);
  const std::vector<Input> corpus = read_corpus(argv[1]);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s holds no input\n", argv[1]);
    return 1;
  }
  for (const Input& input : corpus)
    run(input);
  if (!std::filesystem::is_directory(argv[1])) return 0;
  const char* asked = std::getenv("QUIRE_FUZZ_RUNS");
  const std::size_t num_runs = asked != nullptr ? std::strtoull(asked, nullptr, 10) : kDefaultRuns;
  quire::fuzz::Mutator mutator(corpus, kSeed);
  for (std::size_t i = 0; i < num_runs; ++i)
    run(mutator.next());
  std::printf("%zu inputs and %zu mutations\n", corpus.size(), num_runs);
  return 0;
}
