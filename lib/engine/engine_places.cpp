// Where the tensors of a step lie, built again when the number of micro-batches or their length
// changes, and what they take; what batches add up to, and what routers left there.
#include <algorithm>
#include <numeric>

#include "base/at.h"
#include "base/log.h"
#include "base/ordered_key.h"
#include "config/schema/optimizers.h"
#include "engine/engine.h"
#include "engine/timers.h"
#include "ops/router.h"
#include "plan/cost/estimate.h"

namespace trainctl {

namespace {

/// Why steps are not graphs of the device although the plan has graphs: what the plan does not
/// know. "": they are.
std::string why_no_graphs(const EngineInput& input, const DeviceWorld& devices) {
  const Hooks& hooks = input.hooks;
  const bool looks = hooks.finalize_model_grads || hooks.after_forward || hooks.after_router ||
                     hooks.after_router_backward || hooks.after_dropout || hooks.after_backward ||
                     hooks.grad_sync;
  if (looks) return "hooks of the program look inside a step";
  if (input.meet) return "the ranks meet within a step";
  if (input.optimizer.qk_clip_threshold) {
    return "optimizer.qk_clip_threshold shares scores over the host within a step";
  }
  return devices.host_part();
}

/// Of each micro-batch: how many before it lie in the same view.
std::vector<int> places_in_views(const std::vector<int>& view_of) {
  std::vector<int> places;
  for (auto one = view_of.begin(); one != view_of.end(); ++one) {
    places.push_back(static_cast<int>(std::count(view_of.begin(), one, *one)));
  }
  return places;
}

/// Of a sequence whose first `tokens` positions are real: their share of the products, and of what
/// the plan has for pairs of positions under the causal mask.
double flops_of_row(const Plan& plan, std::int64_t tokens) {
  const auto real = static_cast<double>(tokens);
  const double share = real / static_cast<double>(plan.tokens_per_step());
  const double pairs = (real + 1) / static_cast<double>(plan.model.seq_length + 1);
  return share * (plan.flops.matmul + plan.flops.attention_causal * pairs);
}

}  // namespace

void Engine::use(const Plan& plan) {
  const bool first = now_ == nullptr;
  if (!first && &plan == now_) return;
  now_ = &plan;
  graph_.reset();
  std::vector<int> feed_places;
  const std::string why = plan.cuda_graphs ? why_no_graphs(input_, devices_) : "";
  if (plan.cuda_graphs && why.empty()) {
    graph_ = std::make_unique<StepGraph>();
    feed_places = places_in_views(rows().activation_slots.view_of);
  }
  if (first && plan.graphs_asked && !why.empty() && world_.rank() == 0) {
    log_warning("parallel.cuda_graphs has no effect, steps run row by row: " + why);
  }
  executor_.use(plan, stage_number(), std::move(feed_places));
}

std::unique_ptr<Stage> Engine::make_stage() {
  if (plan_.overlap.any && beside_ == nullptr) {
    beside_ = std::make_unique<Stream>(plan_.device, "layers", Stream::Mode::queued);
  }
  const DeclaredRows& declared = rows().declared;
  const auto shared = [this](const RowCopies& row) { return buffers_.at(0, row.later); };
  return make_decoder_stage(
      {.model = plan_.model,
       .units = rows().units,
       .form = [this](int view, int unit) { return form_in_view(rows(), view, unit); },
       .defers_head = [this](int view) { return defers_in_view(rows(), view); },
       .places = plan_.map.places(),
       .stage = stage_number(),
       .micro_batch_size = plan_.micro_batch_size,
       .views = rows().activation_slots.views(),
       .tp = {.group = tp_.get(),
              .stream = plan_.sequence_parallel ? Layout::tokens : Layout::invariant,
              .sum = shared(declared.sum),
              .overlap = plan_.overlap,
              .beside = beside_.get(),
              .arriving = plan_.overlap.any ? shared(declared.partial_sums) : Tensor{}},
       .context = {.splits = plan_.context,
                   .tokens = plan_.tokens,
                   .length_step = plan_.length_step,
                   .rank = context_.rank,
                   .whole = context_.whole.get(),
                   .heads = context_.heads.get(),
                   .ring = context_.ring.get(),
                   .packed = shared(declared.attention.packed)},
       .experts = experts_.groups,
       .splits = plan_.splits,
       .rope_tables = buffers_.rope_tables(),
       .temperature_tables = buffers_.temperature_tables(),
       .weights =
           [this](const std::string& name) {
             Weight weight = store_.weight(name);
             weight.rows_vary = plan_.length_step > 0;
             if (!plan_.gradient.fused)
               weight.apart = buffers_.at(0, rows().declared.d_weight.later);
             return weight;
           },
       .rows = &declared,
       .activations = [this](int view, int row) { return buffers_.at(view, row); },
       .keeps_more = [this](int view, int unit) { return partial_in_view(rows(), view, unit); }});
}

Pass Engine::make_pass(int view, int chunk) const {
  // Later chunks have no tokens, all but the last no labels.
  const BatchRows& batch = at(rows().declared.chunks, chunk).batch;
  const auto row = [&](const RowCopies& of) { return buffers_.at(view, of.later); };
  const auto own = [&](const Tensor& x) {  // this rank's share
    if (x.empty()) return x;
    const std::int64_t rows = x.numel() / tp_->size();
    return x.slice(tp_->rank() * rows, (tp_->rank() + 1) * rows);
  };
  const BatchTensors all{
      .tokens = row(batch.tokens),
      .labels = row(batch.labels),
      .position = row(batch.position),
      .global_token = row(batch.global_token),
      .loss_weight = row(batch.loss_weight),
      .first_position = input_.separate_documents ? row(batch.first_position) : Tensor{},
      .query_token = row(batch.query_token),
      .real_query = row(batch.real_query),
      .real = row(batch.real)};
  const BatchTensors share{.tokens = own(all.tokens),
                           .labels = own(all.labels),
                           .position = own(all.position),
                           .global_token = own(all.global_token),
                           .loss_weight = own(all.loss_weight),
                           .first_position = {},
                           .query_token = {},
                           .real = {}};
  // Ranks along tp and cp route the same tokens: one of them counts.
  const bool counted = reads_first(plan_.mesh, world_.rank());
  return {
      .ops = &ops_,
      .state = state_.of_kernels(),
      .batch = all,
      .stream = plan_.sequence_parallel ? share : all,
      .share = share,
      .router_sums = counted && router_sums_.contains("sums") ? router_sums_.at("sums") : Tensor{},
      .largest_logit = logit_.contains("logit") ? logit_.at("logit") : Tensor{},
      .largest_scores = qk_clip_.scores(),
      .routed = router_hook(),
      .routed_back = router_backward_hook(),
      .dropped = dropout_hook(),
      .training = true,
      .deadline_seconds = input_.deadline_seconds};
}

MemoryEstimate Engine::memory() const {
  MemoryEstimate memory;
  memory.parameters = store_.bytes("weights") + store_.bytes("masters");
  memory.gradients = store_.bytes("gradients") + store_.bytes("sums");
  memory.optimizer = matrices_.bytes();
  for (int i = 0; i < most_kept; ++i) memory.optimizer += store_.bytes("state" + std::to_string(i));
  memory.activations = buffers_.bytes();
  memory.offloaded = buffers_.host_bytes() + store_.host_bytes();
  memory.data += executor_.feed_bytes();
  memory.communication = grad_sync_.bytes() + param_sync_.bytes();
  for (const Traffic::Row& row : world_.traffic().rows()) memory.communication += row.memory;
  return memory;
}

void Engine::count_batches(const std::vector<Batch>& batches) {
  Counts mine{};
  if (owns_batch_ || plan_.full_batch) {
    for (const Batch& batch : batches) {
      mine[0] += batch.weight_sum;
      mine[1] += static_cast<double>(real_positions(batch));
      mine[2] += static_cast<double>(counted_labels(batch));
      for (const std::int64_t tokens : batch.real) mine[3] += flops_of_row(plan_, tokens);
    }
  }
  Counts sums = plan_.full_batch ? mine : Counts{};
  if (!plan_.full_batch) {
    gather_values(everyone_->on_host(), mine, {counted_.front().data(), 4 * counted_.size()},
                  host_);
    for (const Counts& other : counted_) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += other[i];
    }
  }
  weight_sum_ = sums[0];
  tokens_now_ = static_cast<std::int64_t>(sums[1]);
  labels_now_ = static_cast<std::int64_t>(sums[2]);
  flops_ = sums[3];
}

std::optional<RouterReport> Engine::share_router() {
  if (!router_sums_.contains("sums")) return std::nullopt;
  const Tensor sums = router_sums_.at("sums");
  everyone_->all_reduce(sums, compute_);
  const Tensor counted = router_on_host_.at("sums");
  compute_.copy(counted, sums);
  settle();
  const std::int64_t experts = plan_.model.experts;
  RouterReport report{.experts = experts};
  loads_.clear();
  for (std::int64_t layer = 0; layer < plan_.model.layers; ++layer) {
    if (!plan_.model.kind(layer).experts) continue;
    const float* row = counted.slice(layer, layer + 1).as<float>();
    const auto sum = [&](RouterSum one) { return double{row[static_cast<int>(one)]}; };
    const float* loads = row + router_sums;
    const double mean = std::accumulate(loads, loads + experts, 0.0) / static_cast<double>(experts);
    std::transform(loads, loads + experts, std::back_inserter(loads_),
                   [&](float load) { return static_cast<float>(double{load} / mean); });
    report.balance_loss += sum(RouterSum::balance);
    report.z_loss += sum(RouterSum::z_loss);
    report.entropy += sum(RouterSum::entropy);
    report.dropped += sum(RouterSum::dropped);
  }
  report.loads = loads_;
  report.load = *std::ranges::max_element(loads_);
  const std::int64_t layers = std::ssize(loads_) / experts;
  const double tokens = static_cast<double>(layers * tokens_now_);
  report.balance_loss /= tokens;
  report.z_loss /= tokens;
  report.entropy /= tokens;
  return report;
}

/// Keys, so that what is not a number is the largest.
std::optional<double> Engine::share_logit() {
  if (!logit_.contains("logit")) return std::nullopt;
  const Tensor own = logit_on_host_.at("logit");
  compute_.copy(own, logit_.at("logit"));
  settle();
  const auto key = static_cast<std::uint32_t>(*own.as<std::int32_t>());
  double most = 0;
  for (const Pair& other : share({static_cast<double>(key), 0})) most = std::max(most, other[0]);
  return double{number_of_key(static_cast<std::uint32_t>(most))};
}

}  // namespace trainctl
