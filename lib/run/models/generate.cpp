#include "run/models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/parallel_for.h"
#include "base/philox.h"
#include "checkpoint/load.h"
#include "comm/group.h"
#include "comm/nccl/device_world.h"
#include "comm/world.h"
#include "config/read/read.h"
#include "engine/forward.h"
#include "engine/parameters/param_store.h"
#include "run/agreement.h"
#include "run/data/corpus.h"
#include "run/models/model_directory.h"
#include "run/prepare.h"
#include "weights/stored_weights.h"

namespace trainctl {

namespace {

struct Run {
  ReadResult read;
  Plan plan;
};

/// A layout of one rank on the device of the run.
ParallelConfig alone_of(const ParallelConfig& trained) {
  ParallelConfig own;
  own.device = trained.device;
  own.deadline_seconds = trained.deadline_seconds;
  return own;
}

/// The part of a run's layout that decides where the parameters are, without options of training.
ParallelConfig placement_of(const ParallelConfig& trained) {
  ParallelConfig own = alone_of(trained);
  own.parallel_mode = trained.parallel_mode;
  own.tensor_parallel = trained.tensor_parallel;
  own.pipeline_stages = trained.pipeline_stages;
  own.virtual_pipeline_stages = trained.virtual_pipeline_stages;
  own.rank_order = trained.rank_order;
  own.vocab_emb_dp = trained.vocab_emb_dp;
  own.share_devices = trained.share_devices;
  own.pipeline = trained.pipeline;
  own.pipeline.dtype.reset();
  own.pipeline.microbatch_group_size_per_vp_stage.reset();
  return own;
}

/// Plans the run for one rank, or in its own layout for several; surplus ranks are replicas.
Run read_run(const GenerateRequest& request, const World& world, Group& everyone) {
  const std::string& directory = request.run_dir;
  ReadResult read = read_model_directory(directory, request.set_options);
  Config& config = read.config;
  const bool asks_layout = std::ranges::any_of(request.set_options, [](const std::string& option) {
    return !option.starts_with("parallel.device=");
  });
  const bool alone = world.size() == 1 && !asks_layout;
  const auto threads = config.parallel.threads_per_rank;
  config.parallel = alone ? alone_of(config.parallel) : placement_of(config.parallel);
  // The run's thread count was for another share of a host; a --set of this command applies.
  const Place place = read.sources.find("parallel.threads_per_rank");
  if (place.origin == Place::Origin::set_option) config.parallel.threads_per_rank = threads;
  const std::int64_t stages = config.parallel.pipeline_stages;
  const std::int64_t model = config.parallel.tensor_parallel * stages;
  config.train.micro_batch_size = 1;
  config.train.micro_batch_num.reset();
  forget_groups(config.moe);
  // The plan must only be legal, with enough micro-batches for every schedule.
  const std::int64_t batches = stages > 1 ? 2 * stages : 1;
  config.train.rampup_batch_size.reset();
  config.train.global_batch_size = std::max<std::int64_t>(1, world.size() / model) * batches;
  Plan plan = prepare(read,
                      {.world_size = world.size(),
                       .ranks_per_host = world.local_size(),
                       .cores_per_host = agree_on_cores(world, everyone),
                       .device = choose_device(config.parallel, world, everyone)},
                      Purpose::generate);
  require(!read.diagnostics.has_errors(), alone ? ExitCode::bad_data : ExitCode::config,
          directory +
              (alone ? " holds no model that can be used:\n"
                     : " has no layout for " + std::to_string(world.size()) + " ranks:\n") +
              render_text(read.diagnostics, false));
  return {std::move(read), std::move(plan)};
}

/// One rank's part of the model, which computes the next token.
class Model {
 public:
  /// `tokens`: the longest context, at most the positions of the model.
  Model(const GenerateRequest& request, const Run& run, std::int64_t tokens, World& world,
        Group& everyone)
      : plan_(run.plan),
        deadline_(run.read.config.parallel.deadline_seconds),
        devices_(world, plan_.device, deadline_, plan_.share_devices),
        host_(DeviceKind::cpu, "tokens", Stream::Mode::run_inline),
        store_(plan_.device, plan_.stage_of(world.rank()),
               {.compute = plan_.compute, .training = false}),
        everyone_(everyone),
        first_(world.rank() == 0),
        // A cache for the full context would waste memory.
        decoder_(
            plan_, devices_, [this](const std::string& name) { return store_.weight(name); },
            tokens, deadline_) {
    set_thread_count(plan_.threads_per_rank);
    while_others_wait(everyone, "weights", true, [&] {
      load_weights(*open_weights(request.run_dir, plan_.model, request.averages), plan_,
                   world.rank(), store_);
    });
    store_.refresh_weights(decoder_.ops());
    devices_.open();
  }

  /// Forgets the context.
  void restart() { decoder_.reset(); }

  /// Returns choose(logits) after the sequence `tokens`, of which all but the last `fresh` are in
  /// the cache, on every rank. Collective.
  template <class Choose>
  std::int32_t next(const std::vector<std::int32_t>& tokens, std::size_t fresh, Choose choose) {
    const auto room = static_cast<std::size_t>(decoder_.capacity() - decoder_.seen());
    if (fresh > room) {
      decoder_.reset();
      fresh =
          std::min(tokens.size(),
                   static_cast<std::size_t>(std::max<std::int64_t>(1, decoder_.capacity() / 2)));
    }
    const auto logits = decoder_.advance(std::span(tokens).last(fresh));
    if (plan_.mesh.pp == 1 || plan_.result_broadcast) return choose(logits);
    // Only rank 0 gets the logits; it sends the chosen token to the other ranks.
    std::int32_t token = first_ ? choose(logits) : 0;
    everyone_.broadcast(host_tensor(&token, 1), 0, host_);
    host_.synchronize();
    return token;
  }

 private:
  const Plan& plan_;
  double deadline_;
  DeviceWorld devices_;
  Stream host_;  // copies values that ranks exchange through host memory
  ParamStore store_;
  Group& everyone_;  // group over host memory
  bool first_;       // whether this is rank 0
  Decoder decoder_;
};

/// The requested tokenizer, else the configuration's, else the one in the model's directory.
Tokenizer tokenizer_of(const GenerateRequest& request, const Run& run) {
  if (!request.tokenizer.empty()) return Tokenizer::open(request.tokenizer);
  if (run.read.sources.places().contains("data.tokenizer")) {
    return open_tokenizer(run.read, run.plan.model);
  }
  const std::string own = tokenizer_in(request.run_dir);
  require(!own.empty(), ExitCode::usage,
          request.run_dir +
              " has no tokenizer that is read here; give one with --tokenizer: byte, "
              "sentencepiece:MODEL or hf:DIR");
  return Tokenizer::open(own);
}

/// The tokens of the prompt as the beginning of a document.
std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> tokens = tokenizer.before_document();
  tokenizer.encode(prompt, tokens);
  if (tokens.empty()) tokens.push_back(std::max(0, tokenizer.end_of_document()));
  return tokens;
}

/// Draws a token from softmax(logits / temperature), limited to the top_k likeliest and among these
/// to the fewest with a total share of top_p (nucleus sampling, Holtzman et al. 2020), by the
/// random value number `index` of `random`.
std::int32_t sample_token(std::span<const float> logits, const GenerateRequest& request,
                          const Philox& random, std::uint64_t index) {
  require(std::ranges::all_of(logits, [](float logit) { return std::isfinite(logit); }),
          ExitCode::diverged,
          "the logits are not finite: the weights have NaN or infinite values, or make them");
  if (request.temperature <= 0) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                     logits.begin());
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::size_t kept = order.size();
  const bool by_share = request.top_p < 1.0;
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (request.top_k > 0 && static_cast<std::size_t>(request.top_k) < kept) {
    kept = static_cast<std::size_t>(request.top_k);
    std::partial_sort(order.begin(), order.begin() + request.top_k, order.end(), likelier);
  } else if (by_share) {
    std::sort(order.begin(), order.end(), likelier);
  }
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> cumulative(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const double logit = logits[static_cast<std::size_t>(order[i])];
    total += std::exp((logit - most) / request.temperature);
    cumulative[i] = total;
  }
  if (by_share) {
    const auto enough =
        std::lower_bound(cumulative.begin(), cumulative.end(), request.top_p * total);
    kept = std::min(kept, static_cast<std::size_t>(enough - cumulative.begin()) + 1);
    cumulative.resize(kept);
    total = cumulative.back();
  }
  const double target = random.uniform(index) * total;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  const auto at =
      std::min<std::size_t>(static_cast<std::size_t>(chosen - cumulative.begin()), kept - 1);
  return order[at];
}

void generate_on(const GenerateRequest& request, World& world, std::ostream& out) {
  const std::unique_ptr<Group> everyone = world.everyone("everyone");
  const Run run = read_run(request, world, *everyone);
  const Tokenizer tokenizer = tokenizer_of(request, run);
  require(tokenizer.vocab_size() <= run.plan.model.vocab, ExitCode::usage,
          "the tokenizer " + tokenizer.specification() + " has " +
              std::to_string(tokenizer.vocab_size()) + " tokens, the model " +
              std::to_string(run.plan.model.vocab));
  const std::vector<std::int32_t> prompt = encode(tokenizer, request.prompt);
  const std::int64_t room = run.plan.model.positions - std::ssize(prompt);
  Model model(request, run, std::ssize(prompt) + std::min(request.max_tokens, room), world,
              *everyone);
  const auto known = static_cast<std::size_t>(tokenizer.vocab_size());  // later tokens lack text
  std::vector<std::int32_t> stops = tokenizer.stop_tokens();
  for (const std::int64_t end : read_special_tokens(request.run_dir).end) {
    stops.push_back(static_cast<std::int32_t>(end));
  }
  const bool first = world.rank() == 0;
  for (std::int64_t sample = 0; sample < request.samples; ++sample) {
    const Philox random(request.seed, static_cast<std::uint64_t>(sample));
    std::vector<std::int32_t> tokens = prompt;
    TextStream text(tokenizer, tokens.back());
    std::size_t fresh = tokens.size();
    model.restart();
    if (first && sample > 0) out << "---\n";
    if (first) out << request.prompt << std::flush;
    for (std::int64_t i = 0; i < request.max_tokens; ++i) {
      const std::int32_t token = model.next(tokens, fresh, [&](std::span<const float> logits) {
        return sample_token(logits.first(known), request, random, static_cast<std::uint64_t>(i));
      });
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) break;
      if (first) out << text.add(token) << std::flush;
      tokens.push_back(token);
      fresh = 1;
    }
    if (first) out << text.finish() << '\n';
  }
}

}  // namespace

void generate(const GenerateRequest& request, std::ostream& out) {
  run_world(request.local_ranks, {}, [&](World& world) {
    set_log_rank(world.rank(), world.size());
    generate_on(request, world, out);
  });
}

}  // namespace trainctl
