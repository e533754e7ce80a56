#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "base/error.h"
#include "base/units.h"
#include "bench/bench_setup.h"
#include "bench/figures.h"
#include "bench/overlap.h"
#include "config/read/read.h"
#include "formats/print/text.h"
#include "plan/gradients/buckets.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

constexpr double max_exposed = 1.0 / 3;      // largest exposed part of the serial time
constexpr double max_apart = 0.1;            // largest deviation of measured from simulated bubble
constexpr std::int64_t predicted_most = 8;   // most stages of a prediction
constexpr std::int64_t wanted_buckets = 16;  // number of buckets if no size is given

/// A measurement of layers: steps that wait for collectives, and steps that overlap them.
struct LayerPart {
  std::string_view part;  // as bench_overlap() names it
  const char* what;
  const char* ranks;
  const char* transfer;  // the wire time of one transfer, as text
  const char* option;    // option that turns the overlap on
  double limit;          // largest exposed time with overlap, relative to that without
  const char* json;
  LayerOverlapInput (*input)(const Config& config);
};

constexpr std::array layer_parts{
    LayerPart{"layers", "collectives in layers", "2 tensor-parallel ranks",
              "each takes as long as the smallest product", "tp_comm_overlap", 0.35,
              "tensor_overlap", tensor_overlap},
    LayerPart{"keys", "keys and values in forward passes", "2 context-parallel ranks",
              "they take as long as attention to them", "p2p, a ring", 0.2, "context_overlap",
              context_overlap},
    LayerPart{"experts", "rows of experts, 1 micro-batch", "2 ranks with half of them each",
              "they go one way in half of the time of their products", "comp_comm_parallel", 0.6,
              "expert_overlap", expert_overlap},
    LayerPart{"passes", "rows of experts, 4 micro-batches", "2 ranks with half of them each",
              "they go one way in half of the time of their products",
              "overlap_expert_parallel_comm", 0.45, "pass_overlap", pass_overlap}};

struct Prediction {
  std::int64_t stages = 0, microbatches = 0;
  Simulation step;
};

/// Findings on sums of gradients, and on bubbles on the same wire.
struct GradientFindings {
  std::optional<std::int64_t> bucket_size;
  OverlapResult overlap;
  std::vector<BubbleResult> bubbles;
  std::vector<Prediction> predictions;
};

struct LayerFindings {
  const LayerPart& part;
  std::optional<OverlapResult> result;  // empty if two ranks cannot share the model
};

struct Findings {
  std::optional<GradientFindings> gradients;
  std::vector<LayerFindings> layers;
};

bool is_near(double ratio) { return ratio >= 1 - max_apart && ratio <= 1 + max_apart; }

/// Gives small models several buckets: a single one is full when the backward ends, hiding nothing.
Config with_buckets(Config config) {
  ParallelConfig& parallel = config.parallel;
  if (parallel.bucket_size || resolve_bucket_rule(parallel) != BucketRule::size) return config;
  const std::int64_t parameters = plan_on_threads(on_stages(config, 2, 4)).parameter_count();
  parallel.bucket_size = std::clamp<std::int64_t>(parameters / wanted_buckets, 1,
                                                  default_bucket_size(BucketRule::size, 2));
  return config;
}

std::optional<OverlapResult> measure_layers(LayerOverlapInput input, int rounds) {
  input.rounds = rounds;
  try {
    return measure_layer_overlap(input);
  } catch (const Error& error) {
    if (error.code() != ExitCode::config) throw;
    return std::nullopt;
  }
}

GradientFindings measure_gradients(const Config& config, int rounds) {
  GradientFindings found;
  found.bucket_size = config.parallel.bucket_size;
  begin_part("gradient sums");
  found.overlap = measure_overlap(config, rounds);
  for (const std::int64_t microbatches : {4, 8}) {
    begin_part("bubble of " + std::to_string(microbatches) + " micro-batches");
    found.bubbles.push_back(
        measure_bubble(config, microbatches, found.overlap.wire, steps_of_a_round * rounds));
  }
  begin_part("simulated bubbles");
  const Config timed = on_stages(config, 2, found.bubbles.back().microbatches);
  const UnitTimes times = unit_times(plan_on_threads(timed), found.bubbles.back().steps);
  for (std::int64_t stages = 2; stages <= predicted_most; stages *= 2) {
    if (config.model.num_layers < stages) break;
    const Plan plan = plan_on_threads(on_stages(config, stages, found.bubbles.back().microbatches));
    found.predictions.push_back(
        {plan.map.stages, plan.microbatches, predict(plan, times, found.overlap.wire)});
  }
  return found;
}

/// Whether to measure the part: on request, or by default where the model has such transfers.
bool applies(const LayerPart& layers, std::string_view asked, const Config& config) {
  if (asked != "all") return asked == layers.part;
  return layers.input == tensor_overlap || layers.input == context_overlap ||
         config.moe.num_experts > 1;
}

Findings measure(const Config& given, std::string_view asked, int rounds) {
  const Config config = with_buckets(given);
  Findings found;
  if (asked == "all" || asked == "gradients") {
    found.gradients = measure_gradients(config, rounds);
  }
  for (const LayerPart& part : layer_parts) {
    if (!applies(part, asked, config)) continue;
    begin_part(part.what);
    found.layers.push_back({part, measure_layers(part.input(config), rounds)});
  }
  return found;
}

std::string rate_of(const WorldOptions& wire) {
  const double rate = 1 / std::max(1e-15, wire.wire_beta_seconds_per_byte);
  return format_bytes(static_cast<std::int64_t>(rate)) + "/s";
}

void print_layers(const LayerFindings& layers, std::ostream& out) {
  const LayerPart& part = layers.part;
  if (!layers.result) {
    out << part.what << ": " << part.ranks << " cannot share this model\n";
    return;
  }
  const OverlapResult& found = *layers.result;
  out << part.what << ", " << part.ranks << ", on a wire of " << rate_of(found.wire) << " where "
      << part.transfer << " (" << format_seconds(found.work_seconds) << ")\n"
      << "             blocking          " << part.option << '\n'
      << "  step       " << format_seconds(found.blocking_step_seconds) << "           "
      << format_seconds(found.overlapped_step_seconds) << '\n'
      << "  exposed    " << format_seconds(found.blocking_exposed_seconds) << "           "
      << format_seconds(found.overlapped_exposed_seconds) << "    ratio "
      << printed("%.2f", found.ratio()) << ", limit " << printed("%.2f", part.limit) << ": "
      << verdict(found.ratio() <= part.limit) << '\n';
}

void print_gradients(const GradientFindings& found, std::ostream& out) {
  const OverlapResult& overlap = found.overlap;
  out << "gradient sums, 2 replicas, ";
  if (found.bucket_size) out << "buckets of " << *found.bucket_size << " elements, ";
  out << "on a wire of " << rate_of(overlap.wire) << " where they take " << percent(gradient_share)
      << " of the backward (" << format_seconds(overlap.work_seconds) << ")\n"
      << "             after backward    overlapped\n"
      << "  step       " << format_seconds(overlap.blocking_step_seconds) << "           "
      << format_seconds(overlap.overlapped_step_seconds) << '\n'
      << "  exposed    " << format_seconds(overlap.blocking_exposed_seconds) << "           "
      << format_seconds(overlap.overlapped_exposed_seconds) << "    ratio "
      << printed("%.2f", overlap.ratio()) << ", limit " << printed("%.2f", max_exposed) << ": "
      << verdict(overlap.ratio() < max_exposed) << '\n';
  out << "bubble, 2 stages, 1f1b, on the first wire\n";
  for (const BubbleResult& bubble : found.bubbles) {
    out << "  " << bubble.microbatches << " micro-batches: measured " << percent(bubble.measured)
        << ", simulated " << percent(bubble.simulated) << "    ratio "
        << printed("%.2f", bubble.ratio) << ", limits " << printed("%.2f", 1 - max_apart) << " to "
        << printed("%.2f", 1 + max_apart) << ": " << verdict(is_near(bubble.ratio)) << '\n';
  }
  out << "simulated from the measured times, a core for each stage\n";
  for (const Prediction& prediction : found.predictions) {
    out << "  " << prediction.stages << " stages, " << prediction.microbatches
        << " micro-batches: bubble " << percent(prediction.step.bubble_fraction)
        << ", forward and backward " << format_seconds(prediction.step.seconds) << '\n';
  }
}

void print_table(const Findings& found, std::ostream& out) {
  if (found.gradients) print_gradients(*found.gradients, out);
  for (const LayerFindings& layers : found.layers) print_layers(layers, out);
}

nlohmann::ordered_json document(const OverlapResult& found, double limit) {
  return {{"wire_beta_seconds_per_byte", found.wire.wire_beta_seconds_per_byte},
          {"product_seconds", found.work_seconds},
          {"blocking_exposed_seconds", found.blocking_exposed_seconds},
          {"overlapped_exposed_seconds", found.overlapped_exposed_seconds},
          {"blocking_step_seconds", found.blocking_step_seconds},
          {"overlapped_step_seconds", found.overlapped_step_seconds},
          {"exposed_ratio", found.ratio()},
          {"exposed_limit", limit}};
}

nlohmann::ordered_json document(const GradientFindings& found) {
  const OverlapResult& overlap = found.overlap;
  nlohmann::ordered_json json{
      {"wire_alpha_seconds", overlap.wire.wire_alpha_seconds},
      {"wire_beta_seconds_per_byte", overlap.wire.wire_beta_seconds_per_byte},
      {"backward_seconds", overlap.work_seconds},
      {"serial_exposed_seconds", overlap.blocking_exposed_seconds},
      {"overlapped_exposed_seconds", overlap.overlapped_exposed_seconds},
      {"serial_step_seconds", overlap.blocking_step_seconds},
      {"overlapped_step_seconds", overlap.overlapped_step_seconds},
      {"exposed_ratio", overlap.ratio()},
      {"exposed_limit", max_exposed}};
  for (const BubbleResult& bubble : found.bubbles) {
    json["bubbles"].push_back({{"microbatches", bubble.microbatches},
                               {"measured", bubble.measured},
                               {"simulated", bubble.simulated},
                               {"ratio", bubble.ratio}});
  }
  for (const Prediction& prediction : found.predictions) {
    json["predictions"].push_back({{"stages", prediction.stages},
                                   {"microbatches", prediction.microbatches},
                                   {"bubble", prediction.step.bubble_fraction},
                                   {"seconds", prediction.step.seconds}});
  }
  return json;
}

nlohmann::ordered_json document(const Findings& found) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (found.gradients) json = document(*found.gradients);
  for (const LayerFindings& layers : found.layers) {
    if (layers.result) json[layers.part.json] = document(*layers.result, layers.part.limit);
  }
  return json;
}

}  // namespace

void bench_overlap(const BenchRequest& request, const std::string& part, std::ostream& out) {
  ReadResult read = read_config(request.config, request.set_options);
  read.diagnostics.sort();
  require(!read.diagnostics.has_errors(), ExitCode::config, render_text(read.diagnostics, false));
  const Findings found = measure(read.config, part, request.pairs);
  tell(request, document(found), out, [&] { print_table(found, out); });
}

}  // namespace trainctl
