// HubClient: requests to a model hub over HTTP: the files of a revision with their checksums, and their bytes. One
// thread at a time. Invariants: paths, commits and checksums in a hub's answers are checked before use; the token goes
// to the hub's own origin only; an error names the remedy.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "server/client/web_reader.h"
#include "server/hub/environment.h"
#include "server/models/model_reference.h"

namespace quire::hub {

struct RemoteFile {
  std::string path;
  std::int64_t size = -1;  // -1: not known yet
  std::string checksum;    // 64 digits: SHA-256; 40: git's hash of a blob. Empty: not known yet
};

struct RemoteRevision {
  std::string commit;
  std::vector<RemoteFile> files;
};

// A reply whose body is read in pieces.
struct OpenFile {
  std::unique_ptr<WebReader> reader;
  std::int64_t offset = 0;  // offset of its first byte in the file
};

// Code of errors that a retry may cure: the network, 408, 429, 5xx.
inline constexpr const char* kTransientCode = "hub_unavailable";
// Code of the error that the hub's file ends before the bytes that are already here: it must then be downloaded whole.
inline constexpr const char* kRangeCode = "range_refused";
bool is_transient(const Error& error);

class HubClient {
 public:
  HubClient(HubEnvironment environment, std::stop_token stop) : hub_(std::move(environment)), stop_(std::move(stop)) {}

  Result<RemoteRevision> list(const ModelReference& model) const;
  // Completes the file's size and checksum if the list lacked them.
  Result<RemoteFile> describe(const ModelReference& model, const std::string& commit, RemoteFile file) const;
  // Opens the file at `offset`, or at its beginning if the server does not support ranges.
  Result<OpenFile> open(const ModelReference& model, const std::string& commit, const RemoteFile& file,
                        std::int64_t offset) const;

 private:
  WebRequest request_for(const std::string& path) const;
  std::string file_path(const ModelReference& model, const std::string& commit, const std::string& path) const;
  // The error for a status other than success.
  Error error_of(int status, const WebReader& reader, const ModelReference& model) const;
  Error unreachable(const Error& cause) const;

  const HubEnvironment hub_;
  const std::stop_token stop_;
};

}  // namespace quire::hub
