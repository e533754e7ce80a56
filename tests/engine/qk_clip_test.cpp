// The largest scores of attention in a step, and what clipping makes of queries and keys by them:
// against a function in fp64, and in every setup.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>

#include "catch.h"
#include "device/slab.h"
#include "equal_gradients.h"

namespace qk_clip_test {

using namespace trainctl;

namespace {

using Options = std::vector<std::string>;

/// With scores large enough to tell heads apart.
const Options spread{"model.init_method_std=0.3", "log.max_attention_logit=true",
                     "train.global_batch_size=4"};
const Options gqa{"model.family=llama", "model.num_query_groups=2"};
/// With Muon, which keeps one value of a matrix before its average.
const std::string averaged = "optimizer.ema_decay=0.75";
const std::string average = ".weight state 1";

/// The report and the result of one step of the sample.
struct Step {
  double logit = 0;
  std::vector<float> scores;  // [layers, heads]; empty without a threshold
  ModelShape model;
  Tensors values;
  std::set<std::string> frozen;  // parameters with a rate of 0
  bool averages = false;
};

using ChangeBatch = std::function<void(const Plan&, Batch&)>;

Step step_of(int ranks, const Options& options, const ChangeBatch& change = {}) {
  std::mutex mutex;
  Step step;
  SampleRun run{.set_options = with(spread, options), .ranks = ranks, .steps = 1, .world = {}};
  run.change_batch = change;
  step.averages = std::ranges::find(options, averaged) != options.end();
  run.inspect = [&](Engine& engine, const Plan& plan, World& world) {
    const Tensors owned = owned_values(engine.parameters(), plan, world.rank());
    const std::span<const float> scores = engine.largest_scores();
    const std::lock_guard lock(mutex);
    join(step.values, owned);
    const std::vector<float> mine(scores.begin(), scores.end());
    if (!step.scores.empty()) CHECK(mine == step.scores);  // the same on all ranks
    step.scores = mine;
    step.model = plan.model;
    for (const ParamSpec& spec : plan.stage_of(world.rank()).parameters) {
      if (spec.rate_factor == 0) step.frozen.insert(spec.name);
    }
  };
  step.logit = train_sample(run).front().max_attention_logit.value_or(NAN);
  return step;
}

Options clipped(const Options& options, double threshold, double alpha = 0.5) {
  return with(options, {"optimizer.qk_clip_threshold=" + std::to_string(threshold),
                        "optimizer.qk_clip_alpha=" + std::to_string(alpha)});
}

/// The factor of an element of a parameter after the step.
double factor_of(const Step& step, const std::string& name, std::size_t element, double threshold,
                 double alpha) {
  const bool query = name.find(".attention.q.") != std::string::npos;
  if ((!query && name.find(".attention.k.") == std::string::npos) ||
      name.find(" state ") != std::string::npos || step.frozen.contains(name)) {
    return 1;
  }
  const auto layer = static_cast<std::int64_t>(std::stoi(name.substr(7)));
  const auto kv_heads = static_cast<std::size_t>(step.model.kind(layer).kv_heads);
  const auto heads = static_cast<std::size_t>(step.model.heads);
  const std::size_t head = element * kv_heads / step.values.at(name).size();
  const std::size_t group = heads / kv_heads;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < group; ++i) {
    most = std::max(
        most, double{step.scores[static_cast<std::size_t>(layer) * heads + head * group + i]});
  }
  return std::pow(std::min(1.0, threshold / most), query ? alpha : 1 - alpha);
}

/// The clipped value of an unclipped one. An average follows its parameter by a quarter.
double clipped_value(const Step& found, const Step& unclipped, const std::string& name,
                     std::size_t element, double threshold, double alpha) {
  const double value = double{unclipped.values.at(name)[element]};
  if (!unclipped.averages || !name.ends_with(average))
    return value * factor_of(found, name, element, threshold, alpha);
  const std::string of = name.substr(0, name.find(" state "));
  const double parameter = double{unclipped.values.at(of)[element]};
  return value + 0.25 * parameter * (factor_of(found, of, element, threshold, alpha) - 1);
}

/// The largest distance of any value from what clipping makes of the unclipped one, as a share of
/// the largest value of its tensor.
double farthest(const Step& found, const Step& unclipped, double threshold, double alpha) {
  double most = 0;
  for (const auto& [name, values] : unclipped.values) {
    double largest = 1e-30;
    double apart = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = clipped_value(found, unclipped, name, i, threshold, alpha);
      largest = std::max(largest, std::abs(expected));
      apart = std::max(apart, std::abs(double{found.values.at(name)[i]} - expected));
    }
    most = std::max(most, apart / largest);
  }
  return most;
}

/// Layer 0 of gpt2 in fp64.
struct FirstAttention {
  const Tensors& values;
  const ModelShape& model;

  double of(const std::string& name, std::int64_t at) const {
    return double{values.at("layers.0." + name)[static_cast<std::size_t>(at)]};
  }
  std::vector<double> normed(const std::vector<float>& stream, std::int64_t token) const {
    const float* x = stream.data() + token * model.hidden;
    double mean = 0;
    double square = 0;
    for (std::int64_t i = 0; i < model.hidden; ++i) mean += double{x[i]} / double(model.hidden);
    for (std::int64_t i = 0; i < model.hidden; ++i) square += std::pow(double{x[i]} - mean, 2);
    const double rstd = 1 / std::sqrt(square / double(model.hidden) + model.norm_epsilon);
    std::vector<double> y;
    for (std::int64_t i = 0; i < model.hidden; ++i) {
      y.push_back((double{x[i]} - mean) * rstd * of("norm1.weight", i) + of("norm1.bias", i));
    }
    return y;
  }
  double product(const std::string& name, const std::vector<double>& x, std::int64_t row) const {
    double sum = of("attention." + name + ".bias", row);
    for (std::int64_t i = 0; i < model.hidden; ++i) {
      sum += x[static_cast<std::size_t>(i)] *
             of("attention." + name + ".weight", row * model.hidden + i);
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("the largest scores of a step are those of a function in fp64", "[threads]") {
  std::vector<std::vector<float>> streams;  // after the embedding, of each micro-batch
  Tensors before;
  std::vector<float> found;
  ModelShape model;
  constexpr std::size_t window = 6;
  SampleRun run{.set_options = with(spread, {"model.num_layers=1", "model.sliding_window=6",
                                             "model.softmax_scale=0.2", "train.micro_batch_size=2",
                                             "optimizer.qk_clip_threshold=1e9"}),
                .steps = 1,
                .world = {}};
  run.hooks.after_forward = [&](int unit, int, const Tensor& stream) {
    if (unit > 0) return;
    std::vector<float>& values = streams.emplace_back(static_cast<std::size_t>(stream.numel()));
    load_floats(stream, values.data());
  };
  run.prepare = [&](Engine& engine, const Plan& plan, World&) {
    model = plan.model;
    before = owned_values(engine.parameters(), plan, 0);
  };
  run.inspect = [&](Engine& engine, const Plan&, World&) {
    found.assign(engine.largest_scores().begin(), engine.largest_scores().end());
  };
  const StepReport report = train_sample(run).front();
  REQUIRE(streams.size() == 2);
  const FirstAttention attention{before, model};
  const std::int64_t length = model.seq_length;
  double logit = -1e9;
  for (std::int64_t head = 0; head < model.heads; ++head) {
    double largest = -1e9;
    for (const std::vector<float>& stream : streams) {
      for (std::int64_t sequence = 0; sequence < 2; ++sequence) {
        std::vector<std::vector<double>> x;
        for (std::int64_t t = 0; t < length; ++t) {
          x.push_back(attention.normed(stream, sequence * length + t));
        }
        std::vector<std::vector<double>> q(x.size());
        std::vector<std::vector<double>> k(x.size());
        for (std::size_t t = 0; t < x.size(); ++t) {
          for (std::int64_t i = 0; i < model.head_dim; ++i) {
            q[t].push_back(attention.product("q", x[t], head * model.head_dim + i));
            k[t].push_back(attention.product("k", x[t], head * model.head_dim + i));
          }
        }
        for (std::size_t t = 0; t < x.size(); ++t) {
          double sum = 0;
          for (std::size_t s = t + 1 - std::min(t + 1, window); s <= t; ++s) {
            double score = 0;
            for (std::size_t i = 0; i < q[t].size(); ++i) score += q[t][i] * k[s][i];
            score *= 0.2;
            largest = std::max(largest, score);
            sum += std::exp(score);
          }
          logit = std::max(logit, std::log(sum));
        }
      }
    }
    CHECK(double{found[static_cast<std::size_t>(head)]} == Approx(largest).epsilon(1e-5));
  }
  CHECK(report.max_attention_logit.value() == Approx(logit).epsilon(1e-5));
  CHECK_FALSE(
      train_sample({.set_options = {}, .steps = 1, .world = {}}).front().max_attention_logit);
}

TEST_CASE("queries and keys are clipped by the largest score of their heads in every setup",
          "[threads]") {
  struct Setup {
    int ranks;
    Options model, layout;
  };
  const Options muon{"optimizer.type=muon", "optimizer.weight_decay=0.1"};
  const Options scaled{"model.softmax_scale=0.2",
                       "optimizer.groups=[{match: \"layers.1.attention.q.*\", lr_mult: 0}]"};
  const Options sharded{"parallel.parallel_optimizer.enable=true",
                        "parallel.parallel_optimizer.threshold=0"};
  const std::vector<Setup> setups{
      {1, {}, {"train.micro_batch_size=1"}},
      {2,
       {},
       {"parallel.tensor_parallel=2", "parallel.sequence_parallel=true",
        "parallel.parallel_mode=semi_auto_parallel",
        "parallel.operator_splits.attention=tokens, whole"}},
      {4, with(gqa, with(muon, with({averaged}, scaled))),
       with(sharded, {"parallel.tensor_parallel=4"})},
      {2, gqa, {"parallel.context_parallel=2"}},
      {2, gqa, {"parallel.context_parallel=2", "parallel.cp_comm_type=a2a"}},
      {2,
       {"model.num_layers=3"},
       {"parallel.pipeline_stages=2", "parallel.pipeline.first_stage_layers=2",
        "train.micro_batch_size=2"}},
      {4, with(muon, {"optimizer.main_params_dtype=bf16", "precision.compute=bf16"}),
       with(sharded, {"parallel.tensor_parallel=2"})}};
  for (const Setup& setup : setups) {
    CAPTURE(setup.ranks, setup.model, setup.layout);
    const Options options = with(setup.model, setup.layout);
    const Step alone = step_of(1, clipped(setup.model, 1e9));
    const Step plain = step_of(setup.ranks, options);
    // Above every score nothing changes.
    const Step above = step_of(setup.ranks, clipped(options, 1e9));
    CHECK(different_bits(above.values, plain.values).empty());
    const bool narrow = setup.model.size() > 2 && setup.model.back() == "precision.compute=bf16";
    const double apart = narrow ? 0.02 : 1e-5;
    REQUIRE(above.scores.size() == alone.scores.size());
    for (std::size_t i = 0; i < alone.scores.size(); ++i) {
      CHECK(double{above.scores[i]} == Approx(double{alone.scores[i]}).epsilon(apart));
    }
    CHECK(plain.logit == Approx(alone.logit).epsilon(apart));
    const double most = double{*std::ranges::max_element(alone.scores)};
    CHECK(plain.logit >= most * (1 - apart));
    CHECK(plain.logit <= most + std::log(16.0) + apart);
    // Some heads are above the threshold, by which only these change.
    std::vector<float> sorted = alone.scores;
    std::ranges::sort(sorted);
    const double threshold = double{sorted[sorted.size() / 2]} * 0.9;
    for (const double alpha : {0.5, 0.2}) {
      const Step found = step_of(setup.ranks, clipped(options, threshold, alpha));
      // The second of two roundings to neighbours is not that of the unclipped value.
      CHECK(farthest(found, plain, threshold, alpha) < (narrow ? 0x1p-7 : 1e-6));
      CHECK(different_bits(found.values, plain.values).size() >= 2);
    }
  }
}

TEST_CASE("scores of padding do not count, whatever it is and however much of it there is",
          "[threads]") {
  // Sequences of 5 to 8 tokens, which are real if `marked`.
  const auto padding = [](std::int32_t token, bool marked) -> ChangeBatch {
    return [=](const Plan& plan, Batch& batch) {
      batch.weight_sum = 0;
      for (std::size_t row = 0; row < batch.real.size(); ++row) {
        const auto first = row * static_cast<std::size_t>(batch.length);
        const auto end = first + static_cast<std::size_t>(batch.length);
        const std::int64_t sample = batch.global_token[first] / batch.length;
        const auto real = 5 + static_cast<std::size_t>(sample * 3 % 4);
        std::fill(&batch.tokens[first + real], batch.tokens.data() + end, token);
        std::fill(&batch.loss_weight[first + real], batch.loss_weight.data() + end, 0.0F);
        for (std::size_t i = first; i < end; ++i) {
          batch.weight_sum += double{batch.loss_weight[i]};
        }
        if (marked) batch.real[row] = static_cast<std::int64_t>(real);
      }
      if (plan.length_step > 0) shorten(batch, plan.length_step);
    };
  };
  const Options apart = clipped({"data.packing=false"}, 1e9);
  const Step alone = step_of(1, apart, padding(60, true));
  CHECK(step_of(1, apart, padding(60, false)).scores != alone.scores);
  const Step other = step_of(1, apart, padding(7, true));
  CHECK(other.scores == alone.scores);
  CHECK(other.logit == alone.logit);
  for (const Options& layout :
       std::vector<Options>{{"parallel.pipeline_stages=2", "train.micro_batch_size=2"},
                            {"parallel.context_parallel=2"},
                            {"parallel.context_parallel=2", "parallel.cp_comm_type=a2a"}}) {
    CAPTURE(layout);
    const Step found =
        step_of(2, with(with(apart, {"parallel.pipeline.variable_seq_lengths=true"}), layout),
                padding(60, true));
    REQUIRE(found.scores.size() == alone.scores.size());
    for (std::size_t i = 0; i < alone.scores.size(); ++i) {
      CHECK(double{found.scores[i]} == Approx(double{alone.scores[i]}).epsilon(1e-5));
    }
    CHECK(found.logit == Approx(alone.logit).epsilon(1e-5));
  }
}

}  // namespace qk_clip_test
