#include "formats/print/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/at.h"
#include "base/text.h"
#include "base/units.h"
#include "config/schema/words.h"
#include "formats/print/print.h"
#include "formats/print/table_parts.h"
#include "formats/print/text.h"
#include "plan/cost/published_memory.h"

namespace trainctl {

namespace {

std::string rule_of(const GroupRow& row) {
  std::string text(word_of(row.type));
  if (row.rate_factor != 1) text += ", rate x " + printed("%.6g", row.rate_factor);
  if (row.decay_factor) return text + ", decay x " + printed("%.6g", *row.decay_factor);
  return text + ", decay of matrices";
}

/// Names with equal parameters of several layers folded: "layers.*.mlp.up.weight (4)".
std::vector<std::string> folded_names(const std::vector<std::string>& names) {
  std::vector<std::string> folded;
  std::map<std::string, std::int64_t> count;
  for (const std::string& name : names) {
    std::string one = name;
    if (name.starts_with("layers.")) one = "layers.*" + name.substr(name.find('.', 7));
    if (count[one]++ == 0) folded.push_back(one);
  }
  for (std::string& name : folded) {
    if (name.starts_with("layers.")) name += " (" + std::to_string(count[name]) + ")";
  }
  return folded;
}

/// How the matrix updates of each stage are divided among its ranks.
std::string matrices_section(const Plan& plan) {
  std::string text;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const std::vector<MatrixWork>& list = at(plan.stages, stage).matrices;
    if (list.empty()) continue;
    std::map<std::int64_t, double> load;
    double all = 0;
    double most = 0;
    std::int64_t count = 0;
    int rounds = 0;
    for (const MatrixWork& work : list) {
      all += work.cost;
      count += work.matrices;
      rounds = std::max(rounds, work.round + 1);
      most = std::max(most, load[work.worker] += work.cost);
    }
    const auto ranks = static_cast<std::int64_t>(ranks_of_stage(plan.mesh, stage).size());
    text += labelled("stage " + std::to_string(stage),
                     grouped_count(count, "matrix") + ", " + operations_text(all) + ", " +
                         grouped_count(rounds, "round") + " over " + grouped_count(ranks, "rank") +
                         ", the busiest does " + operations_text(most));
  }
  return text.empty() ? "" : "matrices that are updated whole\n" + text + "\n";
}

}  // namespace

std::vector<GroupRow> group_rows(const Plan& plan, const OptimizerConfig& optimizer) {
  const std::vector<OptimizerGroup>& groups = optimizer.groups;
  if (groups.empty()) return {};
  std::vector<GroupRow> rows;
  for (const OptimizerGroup& group : groups) {
    rows.push_back({.entry = static_cast<int>(std::ssize(rows)),
                    .type = group.type.value_or(optimizer.type),
                    .rate_factor = group.lr_mult,
                    .decay_factor = group.wd_mult,
                    .parameters = {}});
  }
  GroupRow rest{.entry = -1, .type = optimizer.type, .decay_factor = {}, .parameters = {}};
  for (const StagePlan& stage : plan.stages) {
    for (const ParamSpec& parameter : stage.parameters) {
      if (parameter.second_home) continue;
      GroupRow& row = parameter.group < 0 ? rest : at(rows, parameter.group);
      row.parameters.push_back(parameter.name);
      row.elements += parameter.global_shape.numel();
    }
  }
  if (!rest.parameters.empty()) rows.push_back(std::move(rest));
  return rows;
}

std::vector<MatrixRow> matrix_rows(const Plan& plan) {
  std::vector<MatrixRow> rows;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = at(plan.stages, stage);
    const std::vector<int> ranks = ranks_of_stage(plan.mesh, stage);
    for (const MatrixWork& work : held.matrices) {
      MatrixRow& row = rows.emplace_back(MatrixRow{stage, &work, {}, at(ranks, work.worker)});
      for (const MatrixPart& part : work.parts) {
        row.parameters.push_back(at(held.parameters, part.parameter).name);
      }
    }
  }
  return rows;
}

std::string print_matrices(const Plan& plan) {
  std::string text;
  for (const MatrixRow& row : matrix_rows(plan)) {
    const MatrixWork& work = *row.work;
    std::string names = joined(row.parameters, " + ");
    const std::int64_t expert = work.parts.front().expert;
    if (expert >= 0) names += ", expert " + std::to_string(expert);
    const Shape shape{work.matrix_rows(), work.matrix_columns()};
    const std::string count = work.matrices > 1 ? std::to_string(work.matrices) + " x " : "";
    text += labelled("rank " + std::to_string(row.worker), count + shape.to_string() + " " + names);
  }
  return text;
}

std::string print_optimizer_groups(const Plan& plan, const OptimizerConfig& optimizer) {
  std::string text;
  for (const GroupRow& row : group_rows(plan, optimizer)) {
    const std::string label = row.entry < 0 ? "others" : "entry " + std::to_string(row.entry + 1);
    text +=
        labelled(label, rule_of(row) + ": " + grouped_count(std::ssize(row.parameters), "tensor") +
                            ", " + grouped_count(row.elements, "parameter"));
    for (const std::string& name : folded_names(row.parameters)) text += labelled("", "  " + name);
  }
  return text;
}

std::string optimizer_section(const PrintInput& input) {
  if (input.config == nullptr) return "";
  const std::string rows = print_optimizer_groups(input.plan, input.config->optimizer);
  std::string text;
  if (!rows.empty()) {
    text = "optimizer groups  (the first entry that matches decides)\n" + rows + "\n";
  }
  return text + matrices_section(input.plan);
}

namespace {

constexpr std::array<double, 16> usual_sizes{1,  2,  4,  8,  12, 16,  24,  32,
                                             40, 48, 64, 80, 96, 128, 192, 256};

double usual_size(double needed) {
  const auto found = std::find_if(usual_sizes.begin(), usual_sizes.end(),
                                  [needed](double size) { return size >= needed; });
  return found == usual_sizes.end() ? std::ceil(needed) : *found;
}

}  // namespace

MemoryFit memory_fit(const PrintInput& input) {
  const auto needed = static_cast<double>(input.plan.max_memory().device());
  MemoryFit fit;
  if (input.memory_limit) {
    fit.gibibytes = *input.memory_limit;
    fit.source = "--memory-limit";
  } else if (input.config != nullptr && input.config->recompute.memory_limit) {
    fit.gibibytes = *input.config->recompute.memory_limit;
    fit.source = "recompute.memory_limit";
  } else if (input.config != nullptr && input.config->cluster.device_memory &&
             input.plan.device == DeviceKind::cuda) {
    fit.gibibytes = *input.config->cluster.device_memory;
    fit.source = "cluster.device_memory";
  } else if (input.plan.device_gib && input.plan.device == DeviceKind::cuda) {
    fit.gibibytes = *input.plan.device_gib;
    fit.source = "cluster.device";
  } else {
    fit.gibibytes = usual_size(needed / gibibyte);
  }
  // A limit above 2^62 bytes counts as unlimited.
  const double free = std::min(fit.gibibytes * gibibyte - needed, 4.6e18);
  fit.free = static_cast<std::int64_t>(std::floor(free));
  return fit;
}

std::string fit_text(const MemoryFit& fit) {
  const std::string size = printed("%.4g", fit.gibibytes) + " GiB";
  const std::string why = fit.source.empty() ? "the least usual size that does" : fit.source;
  if (fit.fits()) return "fits in " + size + ", " + format_bytes(fit.free) + " free (" + why + ")";
  return "does not fit in " + size + ": " + format_bytes(-fit.free) + " too much (" + why + ")";
}

namespace {

MemoryModelRows megatron_rows(const PrintInput& input, bool head) {
  const MemoryModelInput sizes =
      megatron_memory_input(input.plan, input.config->model.make_vocab_size_divisible_by,
                            input.config->recompute, input.config->parallel.parallel_optimizer);
  const MegatronMemory memory = megatron_memory(sizes, head);
  MemoryModelRows rows;
  rows.name = head ? "megatron" : "megatron-0.15";
  rows.about = "most loaded rank, 16-bit training with Adam";
  rows.numbers = {{"parameters", memory.parameters, false},
                  {"experts", memory.experts, false},
                  {"weights", memory.weights},
                  {"activations", memory.activations},
                  {"total", memory.total()}};
  return rows;
}

MemoryModelRows korthikanti_rows(const PrintInput& input) {
  const MemoryModelInput sizes = korthikanti_input(input.plan);
  const Technique technique = technique_of(input.plan, input.config->recompute);
  MemoryModelRows rows;
  rows.name = "korthikanti";
  rows.about = "activations of the first stage, " + std::string(name_of(technique));
  rows.numbers = {{"layer", korthikanti_layer(sizes, technique)},
                  {"total", korthikanti_total(sizes, technique)}};
  for (const Word& row : words_of<Technique>) {
    rows.numbers.push_back(
        {"layer_" + std::string(row.text), korthikanti_layer(sizes, Technique(row.value))});
  }
  return rows;
}

}  // namespace

std::vector<MemoryModelRows> memory_models(const PrintInput& input) {
  std::vector<MemoryModelRows> models;
  if (input.config == nullptr) return models;
  const auto wants = [&input](MemoryModels model) {
    return input.memory_models == model || input.memory_models == "all";
  };
  if (wants("megatron")) models.push_back(megatron_rows(input, true));
  if (wants("megatron-0.15")) models.push_back(megatron_rows(input, false));
  if (wants("korthikanti")) models.push_back(korthikanti_rows(input));
  return models;
}

std::string numbers_text(const MemoryModelRows& model) {
  std::string text;
  for (const ModelNumber& number : model.numbers) {
    if (number.name.starts_with("layer_")) continue;
    text += (text.empty() ? "" : ", ") + number.name + " " +
            (number.is_bytes ? format_bytes(static_cast<std::int64_t>(number.value))
                             : format_count(number.value));
  }
  return text;
}

}  // namespace trainctl
