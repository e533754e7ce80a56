#include "formats/print/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "config/schema/words.h"
#include "plan/rules/learning_rate.h"

namespace trainctl {

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}

std::string padded_left(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string grouped_count(std::int64_t count, const std::string& noun) {
  const char* ending = count == 1 ? "" : noun.ends_with("ch") ? "es" : "s";
  if (count != 1 && noun == "matrix") return format_grouped(count) + " matrices";
  return format_grouped(count) + " " + noun + ending;
}

std::string labelled(const std::string& label, const std::string& text) {
  return "  " + padded(label, 13) + " " + text + "\n";
}

std::string shell_word(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of(
                                          "abcdefghijklmnopqrstuvwxyz"
                                          "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                          "0123456789_-+=./:,@%") == std::string::npos;
  if (plain) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

std::string device_text(const Plan& plan) {
  if (plan.device == DeviceKind::cpu) {
    return "on the CPU, " + grouped_count(plan.threads_per_rank, "thread") + " per rank";
  }
  return shares(plan.share_devices) ? "on CUDA devices that ranks may share"
                                    : "on CUDA devices, one for each rank";
}

std::string percent(double share) { return printed("%.1f%%", 100 * share); }

std::string operations_text(double count) {
  std::string text = format_count(count);
  const bool has_prefix = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back()));
  text.insert(text.size() - (has_prefix ? 1 : 0), " ");
  return text + "FLOP";
}

std::string span_text(std::int64_t first, std::int64_t last) {
  return first == last ? std::to_string(first)
                       : std::to_string(first) + ".." + std::to_string(last);
}

std::string hex_text(std::uint64_t value) {
  std::array<char, 20> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%016llx", static_cast<unsigned long long>(value));
  return buffer.data();
}

std::string fold_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t most = 4;
  std::vector<std::string> runs;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    const bool pair = end - begin == 2 && ranks.size() == 2;
    const char* joint = pair ? "," : "-";
    std::string run = std::to_string(ranks[begin]);
    if (end - begin > 1) run += joint + std::to_string(ranks[end - 1]);
    runs.push_back(std::move(run));
    begin = end;
  }
  std::string text;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs.size() > most && i == most - 1) {
      text += ",..";
      i = runs.size() - 1;
    }
    text += (i == 0 ? "" : ",") + runs[i];
  }
  return text;
}

std::string order_text(const RankOrder& order) {
  return joined(order, "-", [](Axis axis) { return name_of(axis); });
}

const std::vector<std::pair<std::string_view, Axis>>& public_axes() {
  static const std::vector<std::pair<std::string_view, Axis>> axes = {
      {"tp", Axis::tp}, {"cp", Axis::cp},         {"ep", Axis::ep},        {"dp", Axis::dp},
      {"pp", Axis::pp}, {"expert_tp", Axis::etp}, {"expert_dp", Axis::edp}};
  return axes;
}

std::string held_text(const UnitRange& chunk, std::int64_t layers) {
  std::string text = chunk.holds(0) ? "embedding" : "";
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const UnitRange blocks = blocks_in(chunk, layers);
  if (!blocks.empty()) {
    const bool one = blocks.begin + 1 == blocks.end;
    add((one ? "layer " : "layers ") + span_text(blocks.begin - 1, blocks.end - 2));
  }
  if (chunk.holds(head_unit(layers))) add("head");
  return text.empty() ? "nothing" : text;
}

std::vector<int> ranks_of_stage(const Mesh& mesh, int stage) {
  const std::int64_t one = stage * mesh.stride(Axis::pp);
  std::vector<int> ranks = mesh.group(one, std::vector<Axis>{Axis::tp, Axis::cp, Axis::dp});
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<std::string> owner_groups(const Plan& plan, int stage, const ParamSpec& row) {
  const auto summed = [&row](Axis axis) {
    return row.gradient_sum[static_cast<std::size_t>(axis)];
  };
  std::vector<std::string> kinds;
  if (summed(Axis::tp)) kinds.emplace_back("tp");
  if (summed(Axis::etp)) kinds.emplace_back("expert:tp");
  if (summed(Axis::ep)) kinds.emplace_back("expert:ep");
  if (summed(Axis::edp)) kinds.emplace_back("expert:dp");
  if (summed(Axis::dp) && summed(Axis::cp)) {
    kinds.emplace_back("dp-cp");
  } else if (summed(Axis::dp) || summed(Axis::cp)) {
    kinds.emplace_back(summed(Axis::dp) ? "dp" : "cp");
  }
  const bool first_home = row.name == "embedding.token.weight" && plan.model.tied && stage == 0;
  if (row.second_home || (first_home && plan.map.stages > 1)) kinds.emplace_back("embedding");
  return kinds;
}

std::vector<std::pair<std::string_view, int>> splits_of(const ParamSpec& row) {
  std::vector<std::pair<std::string_view, int>> splits;
  for (const auto& [name, axis] : public_axes()) {
    const int dim = row.split_dim[static_cast<std::size_t>(axis)];
    if (dim >= 0) splits.emplace_back(name, dim);
  }
  return splits;
}

std::string init_text(const ParamSpec& row) {
  if (row.init != "normal") return std::string(word_of(row.init));
  return "normal " + printed("%.4g", row.init_deviation);
}

std::vector<std::pair<std::string_view, std::int64_t>> memory_rows(const MemoryEstimate& memory) {
  std::vector<std::pair<std::string_view, std::int64_t>> rows{
      {"parameters", memory.parameters},
      {"gradients", memory.gradients},
      {"optimizer", memory.optimizer},
      {"activations", memory.activations},
      {"offloaded", memory.offloaded},
      {"communication", memory.communication},
      {"data", memory.data},
      {"checkpoint", memory.checkpoint},
      {"runtime", memory.runtime}};
  if (memory.on_cuda) {
    rows.emplace_back("library", memory.library);
    rows.emplace_back("communicators", memory.communicators);
  }
  return rows;
}

std::string_view purpose_text(TrafficPurpose purpose) {
  switch (purpose) {
    case TrafficPurpose::layers: return "collectives in layers";
    case TrafficPurpose::gradients: return "gradient sums";
    case TrafficPurpose::parameters: return "parameter gathers";
    case TrafficPurpose::messages: return "messages of stages";
    case TrafficPurpose::scalars: return "loss, norm and flags";
  }
  return "";
}

std::vector<int> bucket_of_each(const StagePlan& stage) {
  std::vector<int> buckets(stage.parameters.size(), -1);
  for (std::size_t i = 0; i < stage.flat.buckets.size(); ++i) {
    for (const int parameter : stage.flat.buckets[i].parameters) {
      buckets[static_cast<std::size_t>(parameter)] = static_cast<int>(i);
    }
  }
  return buckets;
}

int shown_stage(const PrintInput& input) {
  const Plan& plan = input.plan;
  if (input.rank >= 0) return static_cast<int>(plan.mesh.coordinate(input.rank, Axis::pp));
  int fullest = 0;
  for (int stage = 1; stage < plan.map.stages; ++stage) {
    const auto total_of = [&plan](int one) {
      return plan.stages[static_cast<std::size_t>(one)].memory.device();
    };
    if (total_of(stage) > total_of(fullest)) fullest = stage;
  }
  return fullest;
}

void check_rank(const PrintInput& input) {
  const std::int64_t ranks = input.plan.mesh.world_size();
  require(input.rank < ranks, ExitCode::usage,
          "rank " + std::to_string(input.rank) + " is not in a world of " + std::to_string(ranks) +
              " ranks, 0 to " + std::to_string(ranks - 1));
}

std::vector<std::string> printable_kinds(const PrintInput& input) {
  std::vector<std::string> kinds(group_kinds().begin(), group_kinds().end());
  if (input.config && input.config->parallel.hierarchical_context_parallel_sizes) {
    kinds.emplace_back("hierarchical_cp");
  }
  return kinds;
}

void check_kind(const PrintInput& input, const std::string& kind) {
  const std::vector<std::string> known = printable_kinds(input);
  if (std::ranges::find(known, kind) != known.end()) return;
  const char* why = kind == "hierarchical_cp"
                        ? "; parallel.hierarchical_context_parallel_sizes is not given"
                        : "";
  throw Error(ExitCode::usage,
              "no groups of kind '" + kind + "'" + why + "; there are " + joined(known, ", "));
}

std::vector<RankLists> hierarchical_lists(const PrintInput& input) {
  std::vector<RankLists> levels = hierarchical_groups(
      input.plan.mesh, *input.config->parallel.hierarchical_context_parallel_sizes);
  if (input.rank < 0) return levels;
  const int rank = static_cast<int>(input.rank);
  for (RankLists& level : levels) {
    std::erase_if(level, [rank](const std::vector<int>& ranks) {
      return std::find(ranks.begin(), ranks.end(), rank) == ranks.end();
    });
  }
  return levels;
}

std::vector<RatePoint> rates_asked(const PrintInput& input) {
  std::vector<RatePoint> points;
  if (input.config == nullptr) return points;
  for (const std::int64_t step : input.lr_at) {
    points.push_back({step, learning_rate(input.config->lr_schedule, input.plan.steps, step),
                      weight_decay(input.config->optimizer, input.plan.steps, step)});
  }
  return points;
}

}  // namespace trainctl
