// Reads models that Ollama has downloaded, in place. One thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quire::hub {

struct OllamaModel {
  std::string name;  // Ollama's name: llama3.2:1b, owner/name:tag or host/owner/name:tag
  std::filesystem::path path;
  std::uint64_t num_bytes = 0;
};

struct OllamaStore {
  std::vector<OllamaModel> models;      // by name
  std::vector<std::string> complaints;  // reasons why models cannot be served
};

// OLLAMA_MODELS, else the folder of this user, else that of the system's service; empty if there is none.
std::filesystem::path ollama_folder();

// Throws StartupError if the folder is no store.
OllamaStore read_ollama_store(const std::filesystem::path& folder);

// The section of a configuration that serves these models, each loaded by its first request and released when idle.
std::string serving_configuration(const std::vector<OllamaModel>& models);

}  // namespace quire::hub
