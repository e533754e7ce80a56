// A model directory loaded as training and generating do, for tests: one rank, and the parameters
// of every rank of another layout.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "catch.h"
#include "config/read/read.h"
#include "engine/forward.h"
#include "engine/parameters/param_store.h"
#include "plan/prepare/make_plan.h"
#include "reference_model.h"
#include "weights/safetensors.h"
#include "weights/stored_weights.h"

namespace trainctl::testing {

/// A configuration that starts from the directory; `options` are further --set options.
inline ReadResult read_start(const std::filesystem::path& directory,
                             const std::vector<std::string>& options = {}) {
  const std::string text = "model: {from: '" + directory.string() +
                           "'}\ndata: {train: none}\n"
                           "train: {steps: 3, global_batch_size: 2}\n"
                           "lr_schedule: {max_lr: 0.01}\n";
  ReadResult read = read_config_text(text, "t.yaml", options, {.load = load_text, .variable = {}});
  INFO(render_text(read.diagnostics, false));
  REQUIRE(!read.diagnostics.has_errors());
  return read;
}

inline Plan plan_of(ReadResult& read, std::int64_t ranks = 1) {
  Plan plan = make_plan(read.config, {.world_size = ranks}, read.sources, read.diagnostics);
  INFO(render_text(read.diagnostics, false));
  REQUIRE(!read.diagnostics.has_errors());
  return plan;
}

/// One rank's parameters.
struct LoadedRank {
  LoadedRank(const StoredWeights& weights, const Plan& plan, std::int64_t rank)
      : stage(plan.stage_of(rank)),
        store(DeviceKind::cpu, stage, {.compute = plan.compute, .training = false}) {
    load_weights(weights, plan, rank, store);
  }
  std::vector<float> values(int parameter) const {
    const Tensor own = store.master(parameter);
    return {own.as<float>(), own.as<float>() + own.numel()};
  }

  StagePlan stage;
  ParamStore store;
};

/// The logits after each of `tokens`, row by row, from what `rank` holds (all of the model).
inline std::vector<float> logits_of(const Plan& plan, ParamStore& store,
                                    const std::vector<std::int32_t>& tokens) {
  const auto world = self_world();
  const DeviceWorld devices(*world, DeviceKind::cpu, 60);
  Decoder decoder(plan, devices, [&](const std::string& name) { return store.weight(name); });
  std::vector<float> logits;
  for (const std::int32_t token : tokens) {
    const auto row = decoder.advance({&token, 1});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  return logits;
}

template <class T>
std::vector<T> all_of(const SafetensorsFile& file, const std::string& name) {
  const Tensor from = file.at(name);
  std::vector<T> values(static_cast<std::size_t>(from.numel()));
  std::memcpy(values.data(), from.data, static_cast<std::size_t>(from.bytes()));
  return values;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most;
}

}  // namespace trainctl::testing
