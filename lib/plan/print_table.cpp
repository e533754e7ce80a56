#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

#include "base/error.h"
#include "base/units.h"
#include "plan/plan.h"

namespace trainctl {

namespace {

std::string padded(const std::string& text, std::size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}
std::string padded_left(const std::string& text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}
std::string line(const std::string& label, const std::string& text) {
  return "  " + padded(label, 14) + text + "\n";
}
std::string counted(std::int64_t count, const std::string& noun) {
  const char* ending = count == 1 ? "" : noun.ends_with("ch") ? "es" : "s";
  return format_grouped(count) + " " + noun + ending;
}
std::string printed(const char* format, double value) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}
std::string span(std::int64_t first, std::int64_t last) {
  return first == last ? std::to_string(first)
                       : std::to_string(first) + ".." + std::to_string(last);
}

std::string hex(std::uint64_t value) {
  std::array<char, 20> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%016llx", static_cast<unsigned long long>(value));
  return buffer.data();
}

/// The ranks of an arithmetic group: "0..7", or "1, 3 .. 15".
std::string group_text(const Mesh& mesh, std::int64_t rank, Axis axis) {
  const std::int64_t stride = mesh.stride(axis);
  const std::int64_t first = rank - mesh.coordinate(rank, axis) * stride;
  const std::int64_t last = first + (mesh.size(axis) - 1) * stride;
  if (stride == 1 || first == last) return span(first, last);
  return std::to_string(first) + ", " + std::to_string(first + stride) +
         (mesh.size(axis) > 2 ? " .. " + std::to_string(last) : "");
}

std::string mesh_section(const Plan& plan) {
  const Mesh& mesh = plan.mesh;
  std::string world = counted(mesh.world_size(), "rank") + " =";
  std::string experts = "etp.ep.edp = ";
  for (Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
    world += (axis == Axis::tp ? " " : " x ") + std::string(name_of(axis)) + " " +
             std::to_string(mesh.size(axis));
  }
  for (Axis axis : {Axis::etp, Axis::ep, Axis::edp}) {
    experts += (axis == Axis::etp ? "" : " x ") + std::to_string(mesh.size(axis));
  }
  const std::int64_t sequences = plan.micro_batch_size * plan.microbatches * mesh.dp;
  return "mesh\n" + line("world", world + "  (experts: " + experts + ")") +
         line("batch", counted(sequences, "sequence") + " = micro " +
                           std::to_string(plan.micro_batch_size) + " x " +
                           counted(plan.microbatches, "micro-batch") + " x dp " +
                           std::to_string(mesh.dp) + ", " +
                           counted(plan.tokens_per_step(), "token") + " per step") +
         line("compute", std::string(name_of(plan.compute)) + ", " +
                             counted(plan.threads_per_rank, "thread") + " per rank");
}

std::string groups_section(const Plan& plan, std::int64_t rank) {
  const Mesh& mesh = plan.mesh;
  std::string text = "groups\n";
  if (rank >= 0) {
    std::string place;
    for (Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
      place += std::string(name_of(axis)) + " " + std::to_string(mesh.coordinate(rank, axis)) +
               (axis == Axis::pp ? "" : ", ");
    }
    text += line("rank " + std::to_string(rank), place);
  }
  std::string single;
  for (int i = 0; i < axis_count; ++i) {
    const Axis axis = static_cast<Axis>(i);
    const std::string name(name_of(axis));
    if (mesh.size(axis) == 1) {
      single += (single.empty() ? "" : ", ") + name;
    } else if (rank >= 0) {
      text += line(name, "ranks " + group_text(mesh, rank, axis));
    } else {
      text += line(name, counted(mesh.world_size() / mesh.size(axis), "group") + " of " +
                             counted(mesh.size(axis), "rank") + ", the first " +
                             group_text(mesh, 0, axis));
    }
  }
  return text + (single.empty() ? "" : line("of one rank", single));
}

std::string stages_section(const Plan& plan) {
  return "stages\n" +
         line("0", "ranks " + span(0, plan.mesh.world_size() - 1) + ": embedding, layers " +
                       span(0, plan.model.layers - 1) + ", head");
}

/// The rows of a micro-batch, runs of unit-sized B and W rows folded, without its number.
class ScheduleLines {
 public:
  explicit ScheduleLines(const Plan& plan) : plan_(plan) {}

  std::vector<std::string> make() {
    for (const Action& row : plan_.actions) add(row);
    end_run();
    end_reduces();
    end_microbatch();
    return std::move(lines_);
  }

 private:
  void add(const Action& row) {
    const bool backward = row.kind == ActionKind::backward_input;
    if (row.kind != ActionKind::reduce) end_reduces();
    if (backward || row.kind == ActionKind::backward_weight) {
      if (first_unit_ < 0) first_unit_ = row.end - 1;
      last_unit_ = row.begin;
      return;
    }
    end_run();
    if (row.kind == ActionKind::fetch) {
      end_microbatch();
      microbatch_ = row.microbatch;
      block_.push_back("fetch");
    } else if (row.kind == ActionKind::forward) {
      block_.push_back("F units " + span(row.begin, row.end - 1));
    } else if (row.kind == ActionKind::reduce) {
      if (first_reduce_ < 0) first_reduce_ = row.bucket;
      last_reduce_ = row.bucket;
      reduced_ += plan_.flat.buckets[static_cast<std::size_t>(row.bucket)].length;
    } else if (row.kind == ActionKind::wait_reduce) {
      end_microbatch();
      if (row.bucket == 0) {
        lines_.push_back("wait for reduce " +
                         span(0, static_cast<std::int64_t>(plan_.flat.buckets.size()) - 1));
      }
    } else {
      end_microbatch();
      lines_.push_back(to_string(row));
    }
  }

  void end_run() {
    if (first_unit_ < 0) return;
    const std::string first = std::to_string(first_unit_);
    block_.push_back(first_unit_ == last_unit_ ? "B, W of unit " + first
                                               : "B, W of units " + first + " down to " +
                                                     std::to_string(last_unit_) + ", in turn");
    first_unit_ = -1;
  }

  void end_reduces() {
    if (first_reduce_ < 0) return;
    block_.push_back("reduce " + span(first_reduce_, last_reduce_) + "  (" +
                     counted(reduced_, "element") + ", beside the rows below)");
    first_reduce_ = -1;
    reduced_ = 0;
  }

  /// Micro-batches with equal rows share their lines.
  void end_microbatch() {
    if (block_.empty()) return;
    if (block_ != written_) {
      title_ = lines_.size();
      first_microbatch_ = microbatch_;
      lines_.emplace_back();
      for (const std::string& row : block_) lines_.push_back("  " + row);
      written_ = block_;
    }
    lines_[title_] = "micro-batch " + span(first_microbatch_, microbatch_);
    block_.clear();
  }

  const Plan& plan_;
  std::vector<std::string> lines_;
  std::vector<std::string> block_;    // of the micro-batch being read
  std::vector<std::string> written_;  // of the last one printed
  std::size_t title_ = 0;
  int microbatch_ = 0;
  int first_microbatch_ = 0;
  int first_unit_ = -1;
  int last_unit_ = -1;
  int first_reduce_ = -1;
  int last_reduce_ = -1;
  std::int64_t reduced_ = 0;  // elements
};

std::string schedule_section(const Plan& plan) {
  constexpr std::size_t most = 48;
  const std::vector<std::string> lines = ScheduleLines(plan).make();
  std::string text = "schedule  (unit 0 embedding, 1.." + std::to_string(plan.model.layers) +
                     " layers, " + std::to_string(plan.model.layers + 1) + " head; " +
                     counted(static_cast<std::int64_t>(plan.actions.size()), "row") + ", " +
                     counted(plan.slots, "slot") + ")\n";
  const bool cut = lines.size() > most;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (cut && i == most / 2) {
      const std::size_t left_out = lines.size() - most;
      text += "    ... " + std::to_string(left_out) + " more lines ...\n";
      i += left_out;
    }
    text += "  " + lines[i] + "\n";
  }
  return text;
}

std::string sums_text(const ParamSpec& row) {
  std::string text;
  for (int axis = 0; axis < axis_count; ++axis) {
    if (!row.gradient_sum[axis]) continue;
    text += (text.empty() ? "  sum over " : ", ") + std::string(name_of(static_cast<Axis>(axis)));
  }
  return text;
}

std::string init_text(const ParamSpec& row) {
  if (row.init == InitKind::zeros) return "zeros";
  if (row.init == InitKind::ones) return "ones";
  return "normal " + printed("%.4g", row.init_deviation);
}

std::string parameters_section(const Plan& plan) {
  const std::int64_t layers = plan.model.layers;
  std::int64_t total = 0;
  for (const ParamSpec& row : plan.parameters) total += row.global_shape.numel();
  std::string text = "parameters  (" + format_grouped(total) + " in " +
                     counted(static_cast<std::int64_t>(plan.parameters.size()), "tensor") + ", " +
                     counted(static_cast<std::int64_t>(plan.flat.buckets.size()), "bucket") + ")\n";
  const std::string first = "layers.0.";
  for (const ParamSpec& row : plan.parameters) {
    std::string name = row.name;
    std::int64_t copies = 1;
    if (name.starts_with(first)) {
      name = "layers." + span(0, layers - 1) + "." + name.substr(first.size());
      copies = layers;
    } else if (name.starts_with("layers.")) {
      continue;  // every layer has the rows of layer 0
    }
    const std::string sums = sums_text(row);
    text += "  " + padded(name, 34) + padded(row.shape.to_string(), 16) +
            padded_left(format_grouped(row.shape.numel() * copies), 16) + "  " +
            padded(init_text(row), 16) +
            (row.decay ? sums.empty() ? "decay" : "decay   " : "no decay") + sums + "\n";
  }
  return text;
}

std::string memory_section(const Plan& plan) {
  const MemoryEstimate& memory = plan.memory;
  const std::array<std::pair<const char*, std::int64_t>, 7> rows{{
      {"parameters", memory.parameters},
      {"gradients", memory.gradients},
      {"optimizer", memory.optimizer},
      {"activations", memory.activations},
      {"communication", memory.communication},
      {"data", memory.data},
      {"runtime", memory.runtime},
  }};
  const double total = static_cast<double>(std::max<std::int64_t>(1, memory.total()));
  std::string text = "memory per rank\n";
  for (const auto& [name, bytes] : rows) {
    const auto bars = static_cast<std::size_t>(40.0 * static_cast<double>(bytes) / total + 0.5);
    text += line(name, padded_left(format_bytes(bytes), 12) +
                           (bars > 0 ? "  " + std::string(bars, '#') : ""));
  }
  return text + line("total", padded_left(format_bytes(memory.total()), 12));
}

/// "3.04 TFLOP"
std::string operations(double count) {
  std::string text = format_count(count);
  const bool has_prefix = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back()));
  text.insert(text.size() - (has_prefix ? 1 : 0), " ");
  return text + "FLOP";
}

std::string work_section(const Plan& plan) {
  const FlopsEstimate& flops = plan.flops;
  std::string text = "work per step\n";
  text += line("products", operations(flops.matmul));
  text += line("attention", operations(flops.attention_causal) + " causal, " +
                                operations(flops.attention_full) + " if all pairs counted");
  const double per_token = flops.total() / static_cast<double>(plan.tokens_per_step());
  text += line("total", operations(flops.total()) + ", " + operations(per_token) + " per token");
  for (const CollectiveUse& use : plan.communication) {
    text += line("traffic", use.name + " over " + std::string(name_of(use.axis)) + ": " +
                                format_bytes(use.bytes) + " in " + counted(use.count, "call") +
                                " per rank");
  }
  return text;
}

std::string rates_section(const Plan& plan) {
  std::string text = "learning rate  (" + counted(plan.steps, "step") + ")\n";
  for (const RatePoint& point : plan.rates) {
    text += line("step " + std::to_string(point.step),
                 "lr " + printed("%.4g", point.learning_rate) + ", weight decay " +
                     printed("%.4g", point.weight_decay));
  }
  return text;
}

}  // namespace

std::string print_table(const Plan& plan, std::int64_t rank) {
  require(rank < plan.mesh.world_size(), ExitCode::usage,
          "rank " + std::to_string(rank) + " is not in a world of " +
              std::to_string(plan.mesh.world_size()) + " ranks, 0 to " +
              std::to_string(plan.mesh.world_size() - 1));
  return mesh_section(plan) + "\n" + groups_section(plan, rank) + "\n" + stages_section(plan) +
         "\n" + schedule_section(plan) + "\n" + parameters_section(plan) + "\n" +
         memory_section(plan) + "\n" + work_section(plan) + "\n" + rates_section(plan) +
         "\nplan hash " + hex(plan.hash) + "\n";
}

}  // namespace trainctl
