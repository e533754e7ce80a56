#include "plan/schedule/schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace trainctl {

std::vector<ScheduleEntry> schedule_table(int microbatches, int chunks, int group_size) {
  std::vector<ScheduleEntry> table;
  table.reserve(static_cast<std::size_t>(microbatches) * static_cast<std::size_t>(chunks));
  for (int begin = 0; begin < microbatches; begin += group_size) {
    const int end = std::min(microbatches, begin + group_size);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int microbatch = begin; microbatch < end; ++microbatch) {
        table.push_back({microbatch, chunk});
      }
    }
  }
  return table;
}

int warmup_forwards(PipelineScheduler scheduler, const ScheduleInput& input) {
  if (input.stages == 1) return 0;
  const int after = input.stages - input.stage - 1;
  const int all = input.microbatches * input.chunks();
  if (scheduler == PipelineScheduler::gpipe) return all;
  if (input.chunks() == 1) return std::min(all, after);
  return std::min(all, 2 * after + (input.chunks() - 1) * input.group_size);
}

std::string_view schedule_name(PipelineScheduler scheduler, int stages, int chunks) {
  if (stages <= 1) return "none";
  if (scheduler == PipelineScheduler::gpipe) return "gpipe";
  if (scheduler == PipelineScheduler::zb_h1) return "zb_h1";
  return chunks > 1 ? "interleaved_1f1b" : "1f1b";
}

std::vector<Action> make_schedule(PipelineScheduler scheduler, const ScheduleInput& input) {
  if (input.stages <= 1) return schedule_no_pipelining(input);
  switch (scheduler) {
    case PipelineScheduler::gpipe: return schedule_gpipe(input);
    case PipelineScheduler::zb_h1: return schedule_zb_h1(input);
    case PipelineScheduler::one_f_one_b: break;
  }
  return input.chunks() > 1 ? schedule_interleaved(input) : schedule_1f1b(input);
}

int peak_microbatches(std::span<const Action> rows) {
  // A received input lies in the slot, so that it is taken from the receive on.
  int chunks = 0;
  int microbatches = 0;
  for (const Action& row : rows) {
    chunks = std::max(chunks, row.chunk + 1);
    microbatches = std::max(microbatches, row.microbatch + 1);
  }
  constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::vector<std::pair<std::size_t, std::size_t>> lives(
      static_cast<std::size_t>(chunks) * static_cast<std::size_t>(microbatches), {none, none});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ActionKind kind = rows[i].kind;
    const bool uses = kind == ActionKind::fetch || kind == ActionKind::receive_forward ||
                      kind == ActionKind::forward || kind == ActionKind::backward_input ||
                      kind == ActionKind::backward_weight;
    if (!uses || rows[i].chunk < 0 || rows[i].microbatch < 0) continue;
    auto& life =
        lives[static_cast<std::size_t>(rows[i].chunk) * static_cast<std::size_t>(microbatches) +
              static_cast<std::size_t>(rows[i].microbatch)];
    if (life.first == none) life.first = i;
    life.second = i;
  }
  std::vector<int> change(rows.size() + 1, 0);
  for (const auto& [first, last] : lives) {
    if (first == none) continue;
    ++change[first];
    --change[last + 1];
  }
  int alive = 0;
  int peak = 0;
  for (const int delta : change) peak = std::max(peak, alive += delta);
  return peak;
}

int peak_gradients(std::span<const Action> rows) {
  std::map<int, std::set<int>> waiting;  // micro-batches by chunk
  std::size_t peak = 1;
  for (const Action& row : rows) {
    if (row.kind == ActionKind::receive_backward) {
      std::set<int>& chunk = waiting[row.chunk];
      chunk.insert(row.microbatch);
      peak = std::max(peak, chunk.size());
    }
    if (row.kind == ActionKind::backward_input) waiting[row.chunk].erase(row.microbatch);
  }
  return static_cast<int>(peak);
}

std::string short_name(const Action& action) {
  const std::string place = std::to_string(action.microbatch) + "." + std::to_string(action.chunk);
  switch (action.kind) {
    case ActionKind::gather: return "gather " + std::to_string(action.bucket);
    case ActionKind::wait_gather: return "wait_gather " + std::to_string(action.bucket);
    case ActionKind::fetch: return "fetch " + place;
    case ActionKind::forward: return "F" + place;
    case ActionKind::backward_input: return "B" + place;
    case ActionKind::backward_weight: return "W" + place;
    case ActionKind::reduce: return "reduce " + std::to_string(action.bucket);
    case ActionKind::reduce_embedding: return "reduce_embedding " + std::to_string(action.bucket);
    case ActionKind::wait_reduce: return "wait_reduce " + std::to_string(action.bucket);
    case ActionKind::step: return "step";
    case ActionKind::send_forward: return "send_forward " + place;
    case ActionKind::receive_forward: return "receive_forward " + place;
    case ActionKind::send_backward: return "send_backward " + place;
    case ActionKind::receive_backward: return "receive_backward " + place;
    case ActionKind::wait_forward: return "wait_forward " + place;
    case ActionKind::wait_backward: return "wait_backward " + place;
  }
  return "?";
}

std::string to_string(const Action& action) {
  if (!is_pass(action.kind)) return short_name(action);
  return short_name(action) + "[" + std::to_string(action.begin) + "," +
         std::to_string(action.end) + ")";
}

}  // namespace trainctl
