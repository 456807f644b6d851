// RequestAccount: what one request holds until it ends: its admission with the lease of its key's quota, its place in a
// model's queue, its log record. One thread at a time. Invariant: the lease and the place are free before the client
// has the end of the answer.
#pragma once

#include <memory>
#include <string>

#include "server/api/common/operation.h"
#include "server/gate/gate.h"
#include "server/ops/reports/request_record.h"
#include "server/run/reserved_place.h"
#include "server/state/server_state.h"
#include "server/state/settings.h"

namespace quire {

class RequestAccount {
 public:
  // `settings`: used for the whole request, whatever a reload changes.
  RequestAccount(ServerState& state, std::shared_ptr<const Settings> settings, RequestRecord record);
  RequestAccount(const RequestAccount&) = delete;
  RequestAccount& operator=(const RequestAccount&) = delete;

  // Replaces the admission. A stream that is taken over from another daemon passes the gate twice.
  void admit(Admission admission);
  Admission& admission() { return admission_; }
  const Admission& admission() const { return admission_; }
  ReservedPlace& place() { return place_; }
  RequestRecord& record() { return record_; }
  const RequestRecord& record() const { return record_; }
  const std::string& request_id() const { return record_.request_id; }
  const Settings& settings() const { return *settings_; }
  const ServerOptions& options() const { return settings_->options; }
  // The key or address that its bodies and unread answers are charged to.
  std::string client_name() const;

  // A Call without body, made from the head. `on_admin`: it arrived on the admin listener.
  Call new_call(const RequestHead& head, bool on_admin) const;
  // Counts the prompts against the key's quota, before anything is queued.
  Result<void> take_prompt_quota(const Operation& operation);
  // Records how the operation ended. `has_begun`: the engine accepted at least one of its requests.
  void note_outcome(const Operation& operation, const OperationTimes& times, bool has_begun);
  // Counts the answer and frees the request's place. Called before the last bytes are sent, so that the client's next
  // request finds the place free.
  void count(int status);
  // Frees what the request holds and logs it. Further calls do nothing.
  void end();
  void log() const;

 private:
  ServerState& state_;
  const std::shared_ptr<const Settings> settings_;
  Admission admission_;
  ReservedPlace place_;
  RequestRecord record_;
  bool has_ended_ = false;
};

}  // namespace quire
