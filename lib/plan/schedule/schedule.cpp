#include "plan/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "base/at.h"
#include "base/text.h"

namespace trainctl {

std::vector<Action> schedule_table(int microbatches, int chunks, int group_size) {
  std::vector<Action> table;
  table.reserve(static_cast<std::size_t>(microbatches) * static_cast<std::size_t>(chunks));
  for (int begin = 0; begin < microbatches; begin += group_size) {
    const int end = std::min(microbatches, begin + group_size);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int microbatch = begin; microbatch < end; ++microbatch) {
        table.push_back({ActionKind::forward, chunk, microbatch});
      }
    }
  }
  return table;
}

int warmup_forwards(std::span<const Action> rows) {
  const auto is_forward = [](const Action& row) { return row.kind == ActionKind::forward; };
  const auto backward = std::find_if(rows.begin(), rows.end(), [](const Action& row) {
    return row.kind == ActionKind::backward_input;
  });
  const auto before = std::count_if(rows.begin(), backward, is_forward);
  return static_cast<int>(std::any_of(backward, rows.end(), is_forward) ? before - 1 : before);
}

std::string_view schedule_name(PipelineScheduler scheduler, int stages, int chunks) {
  if (stages <= 1) return "none";
  const ScheduleTraits& traits = traits_of(scheduler);
  return chunks > 1 ? traits.chunked_name : traits.name;
}

int peak_microbatches(std::span<const Action> rows) {
  // A received input occupies the slot, so the slot is in use from the receive on.
  int chunks = 0, microbatches = 0;
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
  int alive = 0, peak = 0;
  for (const int delta : change) peak = std::max(peak, alive += delta);
  return peak;
}

bool BucketSum::adds(const Action& row) const {
  const bool backward =
      row.kind == ActionKind::backward_input || row.kind == ActionKind::backward_weight;
  if (row.kind == ActionKind::forward) return row.begin <= head && head < row.end;
  if (!backward) return false;
  const auto first = std::lower_bound(units.begin(), units.end(), row.begin);
  return first != units.end() && *first < row.end;
}

bool reads(const Action& row, const GatherBlock& block) {
  const bool backward = row.kind == ActionKind::backward_input;
  if (!backward && row.kind != ActionKind::forward && row.kind != ActionKind::repeat) return false;
  for (int unit = std::max(row.begin, backward ? 1 : 0); unit < row.end; ++unit) {
    if (block.holds(unit)) return true;
  }
  return false;
}

std::string short_name(const Action& action) {
  // In the order of ActionKind.
  constexpr auto count = static_cast<std::size_t>(ActionKind::wait_backward) + 1;
  static constexpr auto words = take_words<count>(
      "gather|wait_gather|free|fetch|F|offload|wait_offload|reload|wait_reload|R|B|W|reduce|"
      "reduce_embedding|wait_reduce|step|send_forward|receive_forward|send_backward|"
      "receive_backward|wait_forward|wait_backward");
  static_assert(words.back() == "wait_backward");
  const std::string_view word = at(words, action.kind);
  if (action.kind == ActionKind::step) return std::string(word);
  if (names_bucket(action.kind)) {
    return formatted("{} {}{}", word, action.bucket,
                     action.visit > 0 ? formatted(".{}", action.visit) : "");
  }
  return formatted("{}{}{}.{}", word, is_pass(action.kind) ? "" : " ", action.microbatch,
                   action.chunk);
}

std::string to_string(const Action& action) {
  if (!is_pass(action.kind) && !is_host_copy(action.kind)) return short_name(action);
  constexpr const char* legs[] = {"", " out", " work", " home"};
  return formatted("{}[{},{}){}", short_name(action), action.begin, action.end,
                   at(legs, action.leg));
}

namespace {

/// Puts the sends of neighbouring messages first, since the neighbour stage may wait for them.
std::vector<Action> one_by_one(std::vector<Action> rows) {
  for (auto begin = rows.begin(); begin != rows.end();) {
    const auto end =
        std::find_if(begin, rows.end(), [](const Action& row) { return !is_message(row.kind); });
    std::stable_partition(begin, end, [](const Action& row) { return !is_receive(row.kind); });
    begin = end == rows.end() ? end : end + 1;
  }
  return rows;
}

/// Puts each send right after the pass that makes its data, each receive before the pass that
/// precedes the one needing it, and a wait before the latter.
class Overlap {
 public:
  Overlap(const std::vector<Action>& rows, bool beside) : rows_(rows), beside_(beside) {}

  std::vector<Action> run() {
    for (std::size_t at = 0; at < rows_.size(); ++at) {
      const Action& row = rows_[at];
      if (is_receive(row.kind)) {
        receive(row, at);
      } else if (is_message(row.kind)) {
        send(row);
      } else {
        if (is_pass(row.kind)) begin_pass(at);
        result_.push_back(row);
      }
    }
    return std::move(result_);
  }

 private:
  static bool same_place(const Action& a, const Action& b) {
    return a.chunk == b.chunk && a.microbatch == b.microbatch;
  }

  /// Whether `row`, directly after `before`, belongs to the same pass: W to its B, and a B to an F
  /// that runs at the same time.
  bool continues(const Action& before, const Action& row) const {
    if (before.kind == ActionKind::forward) {
      return beside_ && row.kind == ActionKind::backward_input &&
             before.microbatch != row.microbatch;
    }
    return before.kind == ActionKind::backward_input && row.kind == ActionKind::backward_weight &&
           same_place(before, row);
  }
  std::size_t pass_end(const std::vector<Action>& rows, std::size_t at) const {
    std::size_t end = at + 1;
    while (end < rows.size() && continues(rows[end - 1], rows[end])) ++end;
    return end;
  }

  bool needs(const Action& pass, const Action& received) const {
    const bool forward = received.kind == ActionKind::receive_forward;
    const ActionKind kind = forward ? ActionKind::forward : ActionKind::backward_input;
    return pass.kind == kind && same_place(pass, received);
  }

  void receive(const Action& row, std::size_t at) {
    const auto next = std::find_if(rows_.begin() + static_cast<std::ptrdiff_t>(at), rows_.end(),
                                   [](const Action& other) { return is_pass(other.kind); });
    received_.push_back(row);
    const auto first = static_cast<std::size_t>(next - rows_.begin());
    bool needed = false;
    for (std::size_t i = first; next != rows_.end() && i < pass_end(rows_, first); ++i) {
      needed = needed || needs(rows_[i], row);
    }
    if (!any_pass_ || !needed) return result_.push_back(row);
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(pass_begin_++), row);
  }

  void send(const Action& row) {
    const ActionKind kind =
        row.kind == ActionKind::send_forward ? ActionKind::forward : ActionKind::backward_input;
    std::size_t end = result_.size();
    while (end > 0 && !(result_[end - 1].kind == kind && same_place(result_[end - 1], row))) --end;
    if (end > 0) end = pass_end(result_, end - 1);
    result_.insert(result_.begin() + static_cast<std::ptrdiff_t>(end), row);
    if (end <= pass_begin_) ++pass_begin_;
  }

  void begin_pass(std::size_t at) {
    if (at > 0 && continues(rows_[at - 1], rows_[at])) return;
    any_pass_ = true;
    pass_begin_ = result_.size();
    for (std::size_t i = at; i < pass_end(rows_, at); ++i) await(rows_[i]);
  }

  void await(const Action& row) {
    const auto received = std::find_if(received_.begin(), received_.end(),
                                       [&](const Action& one) { return needs(row, one); });
    if (received == received_.end()) return;
    Action wait = *received;
    wait.kind = received->kind == ActionKind::receive_forward ? ActionKind::wait_forward
                                                              : ActionKind::wait_backward;
    result_.push_back(wait);
    received_.erase(received);
  }

  const std::vector<Action>& rows_;
  bool beside_;
  std::vector<Action> result_;
  std::vector<Action> received_;  // receives that are not awaited yet
  std::size_t pass_begin_ = 0;    // start of the last pass in `result_`
  bool any_pass_ = false;
};

}  // namespace

std::vector<Action> arrange_messages(std::vector<Action> rows, const ScheduleInput& input) {
  switch (input.messages.mode) {
    case MessageMode::batched: return rows;
    case MessageMode::single: return one_by_one(std::move(rows));
    case MessageMode::overlapped: return Overlap(rows, !input.legs.empty()).run();
  }
  return rows;
}

}  // namespace trainctl
