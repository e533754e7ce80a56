#include "run/records/timeline.h"

#include <algorithm>
#include <cmath>

#include "formats/json_text.h"

namespace trainctl {

namespace {

/// The first letter is the kind: what the report colours by.
std::string name_of(const Action& row) {
  const std::string pass = std::to_string(row.microbatch) + "." + std::to_string(row.chunk);
  switch (row.kind) {
    case ActionKind::forward: return "F" + pass;
    case ActionKind::repeat: return "R" + pass;
    case ActionKind::backward_input: return "B" + pass;
    case ActionKind::backward_weight: return "W" + pass;
    case ActionKind::step: return "o";
    case ActionKind::reduce:
    case ActionKind::reduce_embedding:
    case ActionKind::wait_reduce: return "s";
    case ActionKind::gather:
    case ActionKind::wait_gather:
    case ActionKind::free: return "g";
    case ActionKind::offload:
    case ActionKind::wait_offload:
    case ActionKind::reload:
    case ActionKind::wait_reload: return "h";
    case ActionKind::send_forward:
    case ActionKind::send_backward:
    case ActionKind::receive_forward:
    case ActionKind::receive_backward:
    case ActionKind::wait_forward:
    case ActionKind::wait_backward: return "m";
    default: return "d";
  }
}

/// Rows of no length are left out.
std::string rows_json(const TraceSource& source, std::int64_t step, double zero) {
  JsonText json;
  json.open_object(JsonText::Form::one_line);
  json.member("rank", source.everyone.rank());
  json.key("rows").open_array();
  const auto rows = source.trace.rows();
  const auto records = source.trace.step(step);
  const auto micro = [](double seconds) { return std::llround(seconds * 1e6); };
  for (std::size_t i = 0; i < rows.size();) {
    const std::string name = name_of(rows[i]);
    const double start = records[i].start;
    double finish = start;
    double waited = 0;
    for (; i < rows.size() && name_of(rows[i]) == name; ++i) {
      finish = records[i].finish;
      waited += records[i].waited;
    }
    if (micro(finish - start) == 0) continue;
    json.open_array();
    json.value(name);
    json.value(static_cast<std::int64_t>(micro(start - zero)));
    json.value(static_cast<std::int64_t>(micro(finish - start)));
    json.value(static_cast<std::int64_t>(micro(waited)));
    json.close();
  }
  json.close();
  json.close();
  std::string text = json.take();
  text.pop_back();  // its newline
  return text;
}

}  // namespace

std::string timeline_json(const TraceSource& source, std::int64_t step, std::int64_t shown) {
  const double offset = clock_offset(source);
  const double start = source.trace.step(step).front().start + offset;
  const auto starts = gather_values(source.everyone, start);
  const double zero = *std::min_element(starts.begin(), starts.end()) - offset;
  const Mesh& mesh = source.plan.mesh;
  const int rank = source.everyone.rank();
  const bool first = mesh.coordinate(rank, Axis::dp) == 0 && mesh.coordinate(rank, Axis::tp) == 0 &&
                     mesh.coordinate(rank, Axis::cp) == 0;
  const auto all =
      gather_bytes(source.everyone, first ? rows_json(source, step, zero) : std::string(), 0);
  if (rank != 0) return "";
  JsonText json;
  json.open_object();
  json.member("step", shown);
  json.key("ranks").open_array();
  for (const std::string& one : all) {
    if (!one.empty()) json.json(one);
  }
  json.close();
  json.close();
  std::string text = json.take();
  text.pop_back();
  return text;
}

}  // namespace trainctl
