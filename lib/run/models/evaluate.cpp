#include "run/models/evaluate.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/integers.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "comm/group.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "engine/engine.h"
#include "plan/rules/resolve.h"
#include "run/agreement.h"
#include "run/data/corpus.h"
#include "run/models/model_directory.h"
#include "run/prepare.h"
#include "run/steps.h"
#include "weights/stored_weights.h"

namespace trainctl {

namespace {

constexpr double bits_per_nat = 1.4426950408889634;

/// The directory with the weights of a configuration.
std::filesystem::path weights_of(const Config& config) {
  const std::filesystem::path run = config.output.dir;
  const bool has_weights = kind_of_file(run / "model.safetensors") != FileKind::none ||
                           !CheckpointFolder(run).complete().empty();
  if (has_weights) return run;
  require(config.model.from.has_value(), ExitCode::missing_input,
          run.string() +
              " (output.dir) has neither weights nor a checkpoint, and model.from is not "
              "given");
  return *config.model.from;
}

struct Evaluated {
  ReadResult read;
  Plan plan;
  std::filesystem::path weights;
};

/// Sets the layout of training without the parts that only an optimizer step needs, and a batch
/// with enough micro-batches for every schedule.
void set_layout(Config& config, const World& world) {
  if (world.size() == 1) {
    config.parallel = for_one_rank(config.parallel);
  } else {
    config.parallel.device_num.reset();
    config.parallel.data_parallel.reset();
    config.parallel.global_rank = 0;
    config.parallel.parallel_optimizer = {};
  }
  config.recompute = {};
  config.offload = {};
  // SGD without momentum keeps no state; the type of main parameters is that of training.
  OptimizerConfig nothing;
  nothing.type = OptimizerType::sgd;
  nothing.momentum = 0;
  nothing.main_params_dtype = config.optimizer.main_params_dtype;
  config.optimizer = nothing;
  const Mesh mesh = resolve_mesh(config.parallel, world.size());
  // A micro-batch consists of whole groups of tokens in which experts count.
  const std::int64_t micro = round_up(config.train.micro_batch_size.value_or(1),
                                      sequences_of_groups(model_shape(config.model, config.moe)));
  config.train.micro_batch_size = micro;
  config.train.micro_batch_num.reset();
  config.train.rampup_batch_size.reset();
  config.train.global_batch_size = micro * mesh.dp * (mesh.pp > 1 ? 2 * mesh.pp : 1);
}

Evaluated prepare_evaluation(const EvaluateRequest& request, const World& world, Group& everyone) {
  const bool by_config = !request.config.empty();
  Evaluated made;
  made.read = by_config ? read_config(request.config, request.set_options)
                        : read_model_directory(request.directory, request.set_options);
  Config& config = made.read.config;
  if (made.read.complete && !made.read.diagnostics.has_errors()) {
    made.weights = request.directory;
    if (by_config) made.weights = weights_of(config);
    set_layout(config, world);
  }
  const DeviceKind device = choose_device(config.parallel, world, everyone);
  made.plan = prepare(made.read,
                      {.world_size = world.size(),
                       .ranks_per_host = world.local_size(),
                       .cores_per_host = agree_on_cores(world, everyone),
                       .device = device},
                      Purpose::generate);
  require(!made.read.diagnostics.has_errors(), ExitCode::config,
          "the model cannot be evaluated on " + std::to_string(world.size()) + " rank(s):\n" +
              render_text(made.read.diagnostics, false));
  return made;
}

/// The requested tokenizer, else the configuration's, else the one in the model's directory.
Tokenizer tokenizer_for(const EvaluateRequest& request, const Evaluated& made) {
  if (!request.tokenizer.empty()) return Tokenizer::open(request.tokenizer);
  const bool named = made.read.sources.places().contains("data.tokenizer");
  const std::string own = named ? "" : tokenizer_in(made.weights);
  return Tokenizer::open(own.empty() ? made.read.config.data.tokenizer : own);
}

/// Makes the data to evaluate the only data of the section; returns their name.
std::string choose_data(const EvaluateRequest& request, DataConfig& data) {
  ValidationConfig& validation = data.validation;
  if (!request.data.empty()) {
    data.train = {{request.data, 1.0}};
    validation = {};
    return request.data;
  }
  if (validation.path) {
    data.train = {{*validation.path, 1.0}};
    validation = {};
    return data.train.front().path;
  }
  require(validation.fraction > 0, ExitCode::usage,
          "the configuration holds out no validation data: give some with --data");
  return "the held-out part of data.train";
}

/// The scored tokens of the windows, and the sum of the bytes of each token's text, which does not
/// depend on where windows begin; no sum if some token has no text.
struct Scored {
  std::int64_t tokens = 0;
  std::optional<std::int64_t> bytes = 0;
};

Scored count_scored(const Dataset& data, const Tokenizer& tokenizer, std::int64_t windows) {
  Scored scored;
  Dataset::Sample sample;
  for (std::int64_t i = 0; i < windows; ++i) {
    data.window(i, sample);
    const auto first = sample.tokens.begin() + 1;
    const std::vector<std::int32_t> labels(first, first + sample.scored);
    scored.tokens += std::ssize(labels);
    const bool has_text = std::all_of(labels.begin(), labels.end(), [&](std::int32_t token) {
      return token >= 0 && token < tokenizer.vocab_size();
    });
    if (!has_text) scored.bytes.reset();
    for (const std::int32_t token : labels) {
      if (scored.bytes) *scored.bytes += tokenizer.bytes_of(token);
    }
  }
  return scored;
}

void evaluate_on(const EvaluateRequest& request, World& world,
                 const std::function<void(const EvaluateResult&)>& take) {
  const std::unique_ptr<Group> everyone = world.everyone("evaluate");
  const Evaluated made = prepare_evaluation(request, world, *everyone);
  const Config& config = made.read.config;
  const Plan& plan = made.plan;
  const Tokenizer tokenizer = tokenizer_for(request, made);
  DataConfig data = config.data;
  EvaluateResult result;
  result.data = choose_data(request, data);
  Corpus corpus = open_corpus(data, tokenizer, plan.model, config.train.seed, *everyone,
                              world.local_rank() == 0);
  const Dataset& windows = corpus.validation ? *corpus.validation : corpus.train;
  Engine engine({.plan = plan,
                 .train = config.train,
                 .optimizer = config.optimizer,
                 .lr_schedule = config.lr_schedule,
                 .loss_scaling = resolve_loss_scaling(config),
                 .deadline_seconds = config.parallel.deadline_seconds,
                 .separate_documents = data.reset_attention_mask,
                 .count_loss_weights = masks_tokens(data)},
                world);
  while_others_wait(*everyone, "weights", true, [&] {
    load_weights(*open_weights(made.weights, plan.model, request.averages), plan, world.rank(),
                 engine.parameters());
  });
  engine.masters_changed();
  const std::optional<double> loss =
      engine.evaluate(windows, evaluation_rule(corpus, plan), request.max_sequences);
  if (world.rank() != 0) return;
  require(loss.has_value(), ExitCode::internal, "rank 0 has no loss");
  require(std::isfinite(*loss), ExitCode::diverged,
          made.weights.string() + ": the loss on " + result.data +
              " is not finite: the weights have NaN or infinite values, or make them");
  result.loss = *loss;
  result.perplexity = std::exp(*loss);
  result.sequences = windows.windows();
  if (request.max_sequences > 0) {
    result.sequences = std::min(result.sequences, request.max_sequences);
  }
  const Scored scored = count_scored(windows, tokenizer, result.sequences);
  result.tokens = scored.tokens;
  if (scored.bytes && *scored.bytes > 0) {
    result.bits_per_byte = *loss * bits_per_nat * static_cast<double>(scored.tokens) /
                           static_cast<double>(*scored.bytes);
  }
  take(result);
}

}  // namespace

void evaluate(const EvaluateRequest& request,
              const std::function<void(const EvaluateResult&)>& take) {
  run_world(request.local_ranks, {}, [&](World& world) {
    set_log_rank(world.rank(), world.size());
    evaluate_on(request, world, take);
  });
}

}  // namespace trainctl
