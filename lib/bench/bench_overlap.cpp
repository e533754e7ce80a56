#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "base/error.h"
#include "base/units.h"
#include "bench/bench.h"
#include "bench/context_overlap.h"
#include "bench/expert_overlap.h"
#include "bench/figures.h"
#include "bench/overlap.h"
#include "bench/tensor_overlap.h"
#include "config/read/read.h"
#include "formats/print/text.h"
#include "plan/gradients/buckets.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

constexpr double most_exposed = 1.0 / 3;      // of the serial time
constexpr double most_tensor_exposed = 0.35;  // of what blocking collectives take
constexpr double most_expert_exposed = 0.6;   // the same of rows in two chunks
constexpr double most_pass_exposed = 0.45;    // the same beside passes of other micro-batches
constexpr double most_ring_exposed = 0.2;     // of keys and values, of what gathering them takes
constexpr double most_apart = 0.1;            // measured bubble from the simulated one
constexpr std::int64_t predicted_most = 8;    // stages
constexpr std::int64_t wanted_buckets = 16;   // where no size is given

struct Findings {
  OverlapInput input;
  OverlapResult overlap;
  std::optional<LayerOverlapResult> tensor;   // unless two ranks cannot share a layer
  std::optional<LayerOverlapResult> context;  // unless they cannot share a sequence
  std::optional<LayerOverlapResult> experts;  // unless they cannot share experts
  std::optional<LayerOverlapResult> passes;   // the same
  std::vector<BubbleResult> bubbles;
  std::vector<Prediction> predictions;
};

double exposed_ratio(const OverlapResult& overlap) {
  return overlap.overlapped_exposed_seconds / overlap.serial_exposed_seconds;
}

bool is_near(double ratio) { return ratio >= 1 - most_apart && ratio <= 1 + most_apart; }

/// A model smaller than a bucket has one, which is full when the backward ends and hides nothing.
Config with_buckets(Config config) {
  ParallelConfig& parallel = config.parallel;
  if (parallel.bucket_size || resolve_bucket_rule(parallel) != BucketRule::size) return config;
  const std::int64_t parameters = plan_on_threads(on_stages(config, 2, 4)).parameter_count();
  parallel.bucket_size = std::clamp<std::int64_t>(parameters / wanted_buckets, 1,
                                                  default_bucket_size(BucketRule::size, 2));
  return config;
}

std::optional<LayerOverlapResult> measure_layers(LayerOverlapInput input, int rounds) {
  input.rounds = rounds;
  try {
    return measure_layer_overlap(input);
  } catch (const Error& error) {
    if (error.code() != ExitCode::config) throw;
    return std::nullopt;
  }
}

Findings measure(const Config& given, int rounds) {
  const Config config = with_buckets(given);
  Findings found;
  found.input.config = config;
  found.input.rounds = rounds;
  begin_part("gradient sums");
  found.overlap = measure_overlap(found.input);
  begin_part("collectives in layers");
  found.tensor = measure_layers(tensor_overlap(config), rounds);
  begin_part("keys and values");
  found.context = measure_layers(context_overlap(config), rounds);
  if (config.moe.num_experts > 1) {
    begin_part("rows of experts in chunks");
    found.experts = measure_layers(expert_overlap(config), rounds);
    begin_part("rows of experts beside passes");
    found.passes = measure_layers(pass_overlap(config), rounds);
  }
  for (const std::int64_t microbatches : {4, 8}) {
    begin_part("bubble of " + std::to_string(microbatches) + " micro-batches");
    found.bubbles.push_back(
        measure_bubble(config, microbatches, found.overlap.wire, found.input.steps * rounds));
  }
  begin_part("simulated bubbles");
  const Config timed = on_stages(config, 2, found.bubbles.back().microbatches);
  const UnitTimes times = unit_times(plan_on_threads(timed), found.bubbles.back().steps);
  for (std::int64_t stages = 2; stages <= predicted_most; stages *= 2) {
    if (config.model.num_layers < stages) break;
    const Plan plan = plan_on_threads(on_stages(config, stages, found.bubbles.back().microbatches));
    found.predictions.push_back(predict(plan, times, found.overlap.wire));
  }
  return found;
}

void print_layers(const LayerOverlapResult& found, const char* overlapped, double limit,
                  std::ostream& out) {
  out << "             blocking          " << overlapped << '\n'
      << "  step       " << format_seconds(found.blocking_step_seconds) << "           "
      << format_seconds(found.overlapped_step_seconds) << '\n'
      << "  exposed    " << format_seconds(found.blocking_exposed_seconds) << "           "
      << format_seconds(found.overlapped_exposed_seconds) << "    ratio "
      << printed("%.2f", found.ratio()) << ", limit " << printed("%.2f", limit) << ": "
      << verdict(found.ratio() <= limit) << '\n';
}

std::string rate_of(const LayerOverlapResult& found) {
  const double rate = 1 / std::max(1e-15, found.wire.wire_beta_seconds_per_byte);
  return format_bytes(static_cast<std::int64_t>(rate)) + "/s";
}

void print_tensor(const std::optional<LayerOverlapResult>& tensor, std::ostream& out) {
  if (!tensor) {
    out << "collectives in layers: two tensor-parallel ranks cannot share this model\n";
    return;
  }
  out << "collectives in layers, 2 tensor-parallel ranks, on a wire of " << rate_of(*tensor)
      << " where each takes as long as the smallest product ("
      << format_seconds(tensor->product_seconds) << ")\n";
  print_layers(*tensor, "tp_comm_overlap", most_tensor_exposed, out);
}

void print_context(const std::optional<LayerOverlapResult>& context, std::ostream& out) {
  if (!context) {
    out << "keys and values: two context-parallel ranks cannot share these sequences\n";
    return;
  }
  out << "keys and values in forward passes, 2 context-parallel ranks, on a wire of "
      << rate_of(*context) << " where they take as long as attention to them ("
      << format_seconds(context->product_seconds) << ")\n";
  print_layers(*context, "p2p, a ring", most_ring_exposed, out);
}

struct ExpertCase {
  const char* option;
  double limit;
  const char* batch;
};

void print_experts(const std::optional<LayerOverlapResult>& experts, const ExpertCase& of,
                   std::ostream& out) {
  if (!experts) return;
  out << "rows of experts, 2 ranks with half of them each, " << of.batch << ", on a wire of "
      << rate_of(*experts) << " where they go one way in half of the time of their products ("
      << format_seconds(experts->product_seconds) << ")\n";
  print_layers(*experts, of.option, of.limit, out);
}

void print_table(const Findings& found, std::ostream& out) {
  const OverlapResult& overlap = found.overlap;
  const double rate = 1 / std::max(1e-15, overlap.wire.wire_beta_seconds_per_byte);
  out << "gradient sums, 2 replicas, ";
  if (const auto size = found.input.config.parallel.bucket_size) {
    out << "buckets of " << *size << " elements, ";
  }
  out << "on a wire of " << format_bytes(static_cast<std::int64_t>(rate)) << "/s where they take "
      << percent(found.input.share) << " of the backward ("
      << format_seconds(overlap.backward_seconds) << ")\n"
      << "             after backward    overlapped\n"
      << "  step       " << format_seconds(overlap.serial_step_seconds) << "           "
      << format_seconds(overlap.overlapped_step_seconds) << '\n'
      << "  exposed    " << format_seconds(overlap.serial_exposed_seconds) << "           "
      << format_seconds(overlap.overlapped_exposed_seconds) << "    ratio "
      << printed("%.2f", exposed_ratio(overlap)) << ", limit " << printed("%.2f", most_exposed)
      << ": " << verdict(exposed_ratio(overlap) < most_exposed) << '\n';
  print_tensor(found.tensor, out);
  print_context(found.context, out);
  print_experts(found.experts, {"comp_comm_parallel", most_expert_exposed, "1 micro-batch"}, out);
  print_experts(found.passes,
                {"overlap_expert_parallel_comm", most_pass_exposed, "4 micro-batches"}, out);
  out << "bubble, 2 stages, 1f1b, on the first wire\n";
  for (const BubbleResult& bubble : found.bubbles) {
    out << "  " << bubble.microbatches << " micro-batches: measured " << percent(bubble.measured)
        << ", simulated " << percent(bubble.simulated) << "    ratio "
        << printed("%.2f", bubble.ratio) << ", limits " << printed("%.2f", 1 - most_apart) << " to "
        << printed("%.2f", 1 + most_apart) << ": " << verdict(is_near(bubble.ratio)) << '\n';
  }
  out << "simulated from the measured times, a core for each stage\n";
  for (const Prediction& prediction : found.predictions) {
    out << "  " << prediction.stages << " stages, " << prediction.microbatches
        << " micro-batches: bubble " << percent(prediction.bubble) << ", forward and backward "
        << format_seconds(prediction.seconds) << '\n';
  }
}

nlohmann::ordered_json document(const LayerOverlapResult& found, double limit) {
  return {{"wire_beta_seconds_per_byte", found.wire.wire_beta_seconds_per_byte},
          {"product_seconds", found.product_seconds},
          {"blocking_exposed_seconds", found.blocking_exposed_seconds},
          {"overlapped_exposed_seconds", found.overlapped_exposed_seconds},
          {"blocking_step_seconds", found.blocking_step_seconds},
          {"overlapped_step_seconds", found.overlapped_step_seconds},
          {"exposed_ratio", found.ratio()},
          {"exposed_limit", limit}};
}

nlohmann::ordered_json document(const Findings& found) {
  const OverlapResult& overlap = found.overlap;
  nlohmann::ordered_json json{
      {"wire_alpha_seconds", overlap.wire.wire_alpha_seconds},
      {"wire_beta_seconds_per_byte", overlap.wire.wire_beta_seconds_per_byte},
      {"backward_seconds", overlap.backward_seconds},
      {"serial_exposed_seconds", overlap.serial_exposed_seconds},
      {"overlapped_exposed_seconds", overlap.overlapped_exposed_seconds},
      {"serial_step_seconds", overlap.serial_step_seconds},
      {"overlapped_step_seconds", overlap.overlapped_step_seconds},
      {"exposed_ratio", exposed_ratio(overlap)},
      {"exposed_limit", most_exposed}};
  if (found.tensor) json["tensor_overlap"] = document(*found.tensor, most_tensor_exposed);
  if (found.context) json["context_overlap"] = document(*found.context, most_ring_exposed);
  if (found.experts) json["expert_overlap"] = document(*found.experts, most_expert_exposed);
  if (found.passes) json["pass_overlap"] = document(*found.passes, most_pass_exposed);
  for (const BubbleResult& bubble : found.bubbles) {
    json["bubbles"].push_back({{"microbatches", bubble.microbatches},
                               {"measured", bubble.measured},
                               {"simulated", bubble.simulated},
                               {"ratio", bubble.ratio}});
  }
  for (const Prediction& prediction : found.predictions) {
    json["predictions"].push_back({{"stages", prediction.stages},
                                   {"microbatches", prediction.microbatches},
                                   {"bubble", prediction.bubble},
                                   {"seconds", prediction.seconds}});
  }
  return json;
}

}  // namespace

void bench_overlap(const BenchRequest& request, std::ostream& out) {
  ReadResult read = read_config(request.config, request.set_options);
  read.diagnostics.sort();
  require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
  const Findings found = measure(read.config, request.pairs);
  if (request.json) {
    out << document(found).dump() << '\n';
  } else {
    print_table(found, out);
  }
}

}  // namespace trainctl
