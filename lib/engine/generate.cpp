#include "engine/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/parallel_for.h"
#include "config/read.h"
#include "data/tokenizer.h"
#include "engine/buffers.h"
#include "engine/export.h"
#include "engine/param_store.h"
#include "nn/decoder.h"
#include "ops/kernels.h"

namespace trainctl {

namespace {

struct Run {
  Config config;
  Plan plan;
};

Run read_run(const std::filesystem::path& directory) {
  require(std::filesystem::is_directory(directory), ExitCode::missing_input,
          "there is no run folder " + directory.string());
  ReadResult read = read_config(directory / "config.yaml", {});
  Config config = read.config;
  config.parallel = {};
  config.train.global_batch_size = 1;
  config.train.micro_batch_size = 1;
  config.train.micro_batch_num.reset();
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Plan plan = make_plan(config, {.world_size = 1, .ranks_per_host = 1, .cores_per_host = cores},
                        read.sources, read.diagnostics);
  require(!read.diagnostics.has_errors(), ExitCode::bad_data,
          (directory / "config.yaml").string() + " is not a resolved config of a run:\n" +
              render_text(read.diagnostics, false));
  return {std::move(config), std::move(plan)};
}

/// Everything that turns tokens into logits.
class Model {
 public:
  Model(const std::filesystem::path& directory, const Plan& plan)
      : stream_(DeviceKind::cpu, "compute", Stream::Mode::run_inline),
        buffers_(DeviceKind::cpu, plan, plan.stages.front()),
        store_(DeviceKind::cpu, plan.stages.front(),
               {.compute = plan.compute, .states = 0, .training = false}) {
    set_thread_count(plan.threads_per_rank);
    ops_ = buffers_.context(stream_);
    import_model(directory, plan.model,
                 [this](const std::string& name) { return store_.master(store_.index_of(name)); });
    store_.refresh_compute(ops_);
    decoder_ =
        make_decoder({.model = plan.model,
                      .compute = plan.compute,
                      .rope_table = buffers_.rope_table(),
                      .weights = [this](const std::string& name) { return store_.weight(name); }});
  }

  /// Logits after `tokens`, of which all but the last `fresh` have been seen.
  std::span<const float> next(const std::vector<std::int32_t>& tokens, std::size_t fresh) {
    const auto room = static_cast<std::size_t>(decoder_->capacity() - decoder_->seen());
    if (fresh > room) {
      decoder_->reset();
      fresh =
          std::min(tokens.size(),
                   static_cast<std::size_t>(std::max<std::int64_t>(1, decoder_->capacity() / 2)));
    }
    return decoder_->advance(ops_, std::span(tokens).last(fresh));
  }

 private:
  Stream stream_;
  Buffers buffers_;
  ParamStore store_;
  OpContext ops_;
  std::unique_ptr<Decoder> decoder_;
};

std::vector<std::int32_t> encode(const Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<std::int32_t> tokens;
  tokenizer.encode(prompt, tokens);
  if (tokens.empty()) tokens.push_back(std::max(0, tokenizer.end_of_document()));
  return tokens;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, const GenerateRequest& request,
                          const Philox& random, std::uint64_t index) {
  if (request.temperature <= 0) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                     logits.begin());
  }
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::size_t kept = order.size();
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (request.top_k > 0 && static_cast<std::size_t>(request.top_k) < kept) {
    kept = static_cast<std::size_t>(request.top_k);
    std::partial_sort(order.begin(), order.begin() + request.top_k, order.end(), likelier);
  }
  const double most = *std::max_element(logits.begin(), logits.end());
  std::vector<double> cumulative(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    const double logit = logits[static_cast<std::size_t>(order[i])];
    total += std::exp((logit - most) / request.temperature);
    cumulative[i] = total;
  }
  const double target = random.uniform(index) * total;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  const auto at =
      std::min<std::size_t>(static_cast<std::size_t>(chosen - cumulative.begin()), kept - 1);
  return order[at];
}

void generate(const GenerateRequest& request, std::ostream& out) {
  const Run run = read_run(request.run_dir);
  const Tokenizer tokenizer = Tokenizer::open(run.config.data.tokenizer);
  require(tokenizer.vocab_size() <= run.plan.model.vocab, ExitCode::usage,
          "data.tokenizer " + run.config.data.tokenizer + " has " +
              std::to_string(tokenizer.vocab_size()) + " tokens, the model " +
              std::to_string(run.plan.model.vocab));
  Model model(request.run_dir, run.plan);
  const auto known = static_cast<std::size_t>(tokenizer.vocab_size());  // the rest has no text
  const Philox random(request.seed, 0);
  std::vector<std::int32_t> tokens = encode(tokenizer, request.prompt);
  std::size_t fresh = tokens.size();
  std::string shown = request.prompt;
  out << shown << std::flush;
  for (std::int64_t i = 0; i < request.max_tokens; ++i) {
    const auto logits = model.next(tokens, fresh).first(known);
    const std::int32_t token = sample_token(logits, request, random, static_cast<std::uint64_t>(i));
    if (token == tokenizer.end_of_document()) break;
    // A token's text can depend on its neighbours: decode it with the one before and show what is
    // new.
    const std::string before = tokenizer.decode({tokens.back()});
    const std::string both = tokenizer.decode({tokens.back(), token});
    out << (both.starts_with(before) ? both.substr(before.size()) : tokenizer.decode({token}))
        << std::flush;
    tokens.push_back(token);
    fresh = 1;
  }
  out << '\n';
}

}  // namespace trainctl
