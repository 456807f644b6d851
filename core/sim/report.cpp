#include "core/sim/report.h"

#include <fmt/format.h>

namespace quire::sim {

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string json_of(const Distribution& values) {
  return fmt::format(R"({{"count": {}, "mean": {:.6g}, "p50": {:.6g}, "p90": {:.6g}, "p99": {:.6g}, "max": {:.6g}}})",
                     values.num_values(), values.mean(), values.percentile(50), values.percentile(90),
                     values.percentile(99), values.max());
}

// Start and seconds of each step, and for each of its requests the number and the tokens computed.
std::string json_of(const std::vector<SimStep>& steps) {
  std::string out;
  for (const SimStep& step : steps) {
    out += fmt::format("{}[{:.6f}, {:.6f}", out.empty() ? "" : ",\n    ", step.began_s, step.seconds);
    for (const SimStep::Entry& entry : step.entries)
      out += fmt::format(", [{}, {}]", entry.request, entry.num_tokens);
    out += "]";
  }
  return out;
}

std::string json_of(const SimCase& each) {
  const SimReport& r = each.report;
  std::string out = fmt::format("  {{\"case\": {},\n", quoted(each.name));
  const auto add = [&](const char* name, auto value) { out += fmt::format("   \"{}\": {},\n", name, value); };
  add("requests", r.num_requests);
  add("refused", r.num_refused);
  add("duration_s", r.duration_s);
  add("busy_s", r.busy_s);
  add("steps", r.num_steps);
  add("prompt_tokens", r.num_prompt_tokens);
  add("cached_tokens", r.num_cached_tokens);
  add("prompt_blocks", r.num_prompt_blocks);
  add("cached_blocks", r.num_cached_blocks);
  add("hit_rate", r.hit_rate());
  add("block_hit_rate", r.block_hit_rate());
  add("output_tokens", r.num_output_tokens);
  add("output_tokens_per_s", r.output_tokens_per_s());
  add("computed_tokens", r.num_computed_tokens);
  add("images", r.num_images);
  add("images_encoded", r.num_images_encoded);
  add("encoder_s", r.encoder_s);
  add("draft_tokens", r.num_draft_tokens);
  add("accepted_tokens", r.num_accepted_tokens);
  add("preemptions", r.num_preemptions);
  add("swaps", r.num_swaps);
  add("restored_blocks", r.num_restored_blocks);
  add("shared_writes", r.num_shared_writes);
  add("shared_reads", r.num_shared_reads);
  add("handed_over", r.num_handed_over);
  add("recomputed_tokens", r.num_recomputed_tokens);
  add("blocks", r.num_blocks);
  add("peak_blocks", r.peak_blocks);
  add("fairness", r.fairness());
  add("ttft_s", json_of(r.ttft_s));
  add("itl_s", json_of(r.itl_s));
  add("e2e_s", json_of(r.e2e_s));
  add("queue_s", json_of(r.queue_s));
  std::string keys;
  for (const auto& [name, share] : r.keys) {
    keys += fmt::format("{}{}: {{\"requests\": {}, \"tokens\": {}}}", keys.empty() ? "" : ", ", quoted(name),
                        share.num_requests, share.num_tokens);
  }
  out += fmt::format("   \"keys\": {{{}}},\n   \"timeline\": [", keys);
  for (std::size_t i = 0; i < r.timeline.size(); ++i) {
    const TimelinePoint& p = r.timeline[i];
    out += fmt::format("{}[{:.6g}, {:.4g}, {:.4g}, {}, {}]", i > 0 ? ", " : "", p.time_s, p.blocks_used,
                       p.blocks_cached, p.num_running, p.num_waiting);
  }
  out += "]";
  if (!r.steps.empty()) out += ",\n   \"steps\": [" + json_of(r.steps) + "]";
  return out + "}";
}

}  // namespace

std::string to_table(const std::vector<SimCase>& cases) {
  std::string out = fmt::format("{:<40} {:>9} {:>8} {:>9} {:>7} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8}\n",
                                "case", "requests", "hours", "out tok/s", "hits", "blocks", "ttft p50", "ttft p99",
                                "itl p50", "itl p99", "e2e p50", "preempt", "fairness");
  for (const SimCase& each : cases) {
    const SimReport& r = each.report;
    out += fmt::format(
        "{:<40} {:>9} {:>8.2f} {:>9.1f} {:>6.2f}% {:>6.2f}% {:>7.2f}s {:>7.2f}s {:>6.1f}ms {:>6.1f}ms {:>7.1f}s {:>7} "
        "{:>8.4f}\n",
        each.name, r.num_requests, r.duration_s / 3600.0, r.output_tokens_per_s(), 100.0 * r.hit_rate(),
        100.0 * r.block_hit_rate(), r.ttft_s.percentile(50), r.ttft_s.percentile(99), 1000.0 * r.itl_s.percentile(50),
        1000.0 * r.itl_s.percentile(99), r.e2e_s.percentile(50), r.num_preemptions, r.fairness());
    if (r.num_images > 0)
      out +=
          fmt::format("  {} of {} images were encoded, in {:.1f} s\n", r.num_images_encoded, r.num_images, r.encoder_s);
    if (r.num_refused > 0) out += fmt::format("  {} requests could never fit and were refused\n", r.num_refused);
  }
  return out;
}

std::string to_json(const std::vector<SimCase>& cases) {
  std::string out = "[\n";
  for (std::size_t i = 0; i < cases.size(); ++i)
    out += (i > 0 ? ",\n" : "") + json_of(cases[i]);
  return out + "\n]\n";
}

}  // namespace quire::sim
