// Routing rows to experts, and the experts' feed-forwards as one operation over rows that are ordered by expert.
#include <algorithm>

#include "kernels/check.h"
#include "kernels/cpu/cpu_graph_ops.h"
#include "kernels/cpu/rows/graph_math.h"

namespace quire {

namespace {

constexpr std::int64_t kRouteGrain = 16384;  // comparisons that are worth a thread's waking

MatrixView rows_between(MatrixView view, std::int64_t begin, std::int64_t end) {
  return {row_of(view, begin), end - begin, view.cols, view.stride};
}

}  // namespace

ExpertChoices CpuGraphOps::route(MatrixView logits, const RouteOptions& options) {
  check_route_shapes(logits, options);
  chosen_ids_.resize(static_cast<std::size_t>(logits.rows * options.num_chosen));
  chosen_weights_.resize(chosen_ids_.size());
  const std::int64_t step = std::max<std::int64_t>(1, kRouteGrain / (logits.cols * (options.num_chosen + 8)));
  pool_.run((logits.rows + step - 1) / step, [&](int worker, std::int64_t piece) {
    RouteRoom& room = route_rooms_[static_cast<std::size_t>(worker)];
    for (std::int64_t row = piece * step; row < std::min(logits.rows, (piece + 1) * step); ++row) {
      const std::int64_t at = row * options.num_chosen;
      route_row({row_of(logits, row), static_cast<std::size_t>(logits.cols)}, options, chosen_ids_.data() + at,
                chosen_weights_.data() + at, room);
    }
  });
  return {logits.rows, options.num_chosen, chosen_ids_.data(), chosen_weights_.data()};
}

void CpuGraphOps::scale_by_weights(const ExpertChoices& choices, MatrixView x) {
  QUIRE_CHECK(choices.count() == x.rows, "a row for each choice");
  scale_rows(x, {choices.weights, static_cast<std::size_t>(x.rows)});
}

// --- feed-forwards ---------------------------------------------------------------------------------------------------

void CpuGraphOps::experts(const ExpertArgs& args, const ExpertChoices& choices, MatrixView x, MatrixView gate_up,
                          MatrixView results, MatrixView out) {
  check_expert_shapes(choices, x, gate_up, results, out);
  if (x.rows == 0) return;
  const std::int64_t num_choices = choices.count();
  order_.group({choices.ids, static_cast<std::size_t>(num_choices)}, choices.num_chosen, args.row_changes);
  const auto part = [](MatrixView view, const ExpertOrder::Rows& rows) {
    return rows_between(view, rows.begin, rows.end);
  };
  const auto packed = [](const std::unique_ptr<Linear>& linear) { return static_cast<const CpuLinear*>(linear.get()); };
  jobs_.clear();
  for (const ExpertOrder::Rows& rows : order_.rows) {
    const auto sources =
        std::span(order_.sources)
            .subspan(static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.end - rows.begin));
    jobs_.push_back({packed(args.gate_up[rows.expert]), x, sources, part(gate_up, rows)});
  }
  linear_.run_jobs(jobs_, false);
  add_changes(args, ExpertProduct::kGateUp, x, gate_up);
  const std::int64_t width = args.gated ? gate_up.cols / 2 : gate_up.cols;
  const MatrixView activated{gate_up.data, num_choices, width, gate_up.stride};
  const bool swiglu = is_swiglu(args);
  if (!swiglu) {
    const MatrixView up{gate_up.data + width, num_choices, width, gate_up.stride};
    activate(args.activation, activated, args.gated ? up : MatrixView{}, activated);
  }
  jobs_.clear();
  for (const ExpertOrder::Rows& rows : order_.rows) {
    const ProductInput in = swiglu ? gated(part(gate_up, rows)) : ProductInput(part(activated, rows));
    jobs_.push_back({.weights = packed(args.down[rows.expert]), .x = in, .out = part(results, rows)});
  }
  linear_.run_jobs(jobs_, false);
  add_changes(args, ExpertProduct::kDown, swiglu ? gated(gate_up) : ProductInput(activated), results);
  combine(results, choices.weights, out);
}

// An expert's rows with the same change lie together.
void CpuGraphOps::find_changed(const ExpertArgs& args, ExpertProduct product, std::size_t part) {
  changed_.clear();
  const auto change_at = [&](std::int64_t place) {
    return args.row_changes[static_cast<std::size_t>(order_.sources[static_cast<std::size_t>(place)])];
  };
  for (const ExpertOrder::Rows& rows : order_.rows) {
    std::int64_t end = rows.begin;
    for (std::int64_t begin = rows.begin; begin < rows.end; begin = end) {
      const std::int32_t index = change_at(begin);
      while (end < rows.end && change_at(end) == index)
        ++end;
      if (index < 0) continue;
      const ExpertChange& change = args.changes[static_cast<std::size_t>(index)];
      const auto of_expert = product == ExpertProduct::kGateUp ? change.gate_up : change.down;
      if (of_expert.empty() || of_expert[rows.expert].size() <= part) continue;
      changed_.push_back({&of_expert[rows.expert][part], begin, end});
    }
  }
}

void CpuGraphOps::add_changes(const ExpertArgs& args, ExpertProduct product, const ProductInput& in, MatrixView out) {
  const auto low_rows = [&](const ChangedRows& rows) {
    const std::int64_t rank = rows.change->down->out_features();
    QUIRE_CHECK(rank <= args.low_rank_stride, "experts: a change of a larger rank than there is room for");
    return MatrixView{args.low_rank + rows.begin * args.low_rank_stride, rows.end - rows.begin, rank,
                      args.low_rank_stride};
  };
  for (std::size_t part = 0; !args.changes.empty(); ++part) {
    find_changed(args, product, part);
    if (changed_.empty()) return;
    jobs_.clear();
    for (const ChangedRows& rows : changed_) {
      LinearJob& job = jobs_.emplace_back(
          LinearJob{.weights = static_cast<const CpuLinear*>(rows.change->down.get()), .x = in, .out = low_rows(rows)});
      if (product == ExpertProduct::kGateUp) {
        job.rows = std::span(order_.sources)
                       .subspan(static_cast<std::size_t>(rows.begin), static_cast<std::size_t>(rows.end - rows.begin));
      } else {
        job.x.x = rows_between(in.x, rows.begin, rows.end);
      }
    }
    linear_.run_jobs(jobs_, false);
    jobs_.clear();
    for (const ChangedRows& rows : changed_) {
      MatrixView to = rows_between(out, rows.begin, rows.end);
      to.data += rows.change->first_output;
      to.cols = rows.change->up->out_features();
      jobs_.push_back(
          {.weights = static_cast<const CpuLinear*>(rows.change->up.get()), .x = low_rows(rows), .out = to});
    }
    linear_.run_jobs(jobs_, true);
  }
}

void CpuGraphOps::combine(MatrixView results, const float* weights, MatrixView out) {
  const std::int64_t each = results.rows / out.rows;
  for_rows(out.rows, each * out.cols, [&](std::int64_t row) {
    float* to = row_of(out, row);
    for (std::int64_t j = 0; j < each; ++j) {
      const auto choice = static_cast<std::size_t>(row * each + j);
      const float* from = row_of(results, order_.places[choice]);
      const float weight = weights == nullptr ? 1.0f : weights[choice];
      if (j == 0) {
        kernels_.scale(from, weight, out.cols, to);
      } else {
        kernels_.add_scaled(from, weight, out.cols, to);
      }
    }
  });
}

void CpuGraphOps::head_linear(std::span<const std::unique_ptr<Linear>> heads, MatrixView x, MatrixView out) {
  const auto num_heads = std::ssize(heads);
  const std::int64_t from = x.cols / num_heads;
  const std::int64_t to = out.cols / num_heads;
  jobs_.clear();
  for (std::int64_t head = 0; head < num_heads; ++head) {
    const auto* linear = static_cast<const CpuLinear*>(heads[static_cast<std::size_t>(head)].get());
    jobs_.push_back({.weights = linear,
                     .x = MatrixView{x.data + head * from, x.rows, linear->in_features(), x.stride},
                     .out = {out.data + head * to, out.rows, linear->out_features(), out.stride}});
  }
  linear_.run_jobs(jobs_, false);
}

}  // namespace quire
