// Each VIOLATION breaks one thread rule: threads.sh checks that Clang's analysis rejects it, and that 0 is accepted.
#include "core/engine/engine_impl.h"
#include "core/kv/tiers/tier_folder.h"

namespace quire {

#if VIOLATION == 0
void Engine::Impl::run() {
  kEngineThread.assume();
  loop();
}
#elif VIOLATION == 1  // a function of the engine's thread, called by another
void Engine::Impl::run() {
  loop();
}
#elif VIOLATION == 2  // data of the engine's thread, touched by another
void Engine::Impl::run() {
  parts_.scheduler.set_key_weights({});
}
#elif VIOLATION == 3  // a step, called from any thread
void step_elsewhere(Engine& engine) {
  engine.step(Clock::now());
}
#elif VIOLATION == 4  // the engine's end of the queue
void drain_elsewhere(RequestQueue& queue, std::vector<Submission>& submissions, std::vector<Abort>& aborts) {
  queue.drain_into(submissions, aborts);
}
#elif VIOLATION == 5  // an event that another thread sends
void send_elsewhere(OutputSink& sink) {
  sink.send({});
}
#elif VIOLATION == 6  // a ticket that another thread waits for
void wait_elsewhere(Ticket& ticket) {
  ticket.wait();
}
#elif VIOLATION == 7  // the engine's thread in a function of the disk's
void TierFolder::drop_writes() {
  kEngineThread.assume();
  lock_file_ = -1;
}
#elif VIOLATION == 8  // a file that the engine's thread reads
void TierFolder::read(TierEvents read) noexcept {
  kEngineThread.assume();
  read_one(read.front());
}
#endif

}  // namespace quire
