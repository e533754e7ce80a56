// The list of fields of each section. A visitor is called as visit(member, Field) for each value
// and visit.section(member, Field) for each nested section, in the order of the YAML file. Reading,
// unknown keys, the dump, the reference page and the JSON Schema are visitors over these lists.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/schema/config.h"
#include "config/schema/field.h"
#include "config/schema/model_fields.h"
#include "config/schema/moe_fields.h"
#include "config/schema/parallel_fields.h"
#include "config/schema/run_fields.h"

namespace trainctl {

/// Sections that occur as items of a list.
template <class Item>
concept ListedSection = std::same_as<Item, DataSource> || std::same_as<Item, LayerEntry>;

template <class Visitor>
void fields(Visitor& visit, Is<TrainConfig> auto& train) {
  visit(train.steps, field("steps", "Optimizer steps of the run; tokens or epochs gives them too")
                         .count(1, 1e12)
                         .required_unless("tokens|epochs"));
  visit(train.tokens, field("tokens",
                            "Training tokens of the run: steps x global_batch_size x seq_length, "
                            "rounded up to whole steps")
                          .count(1, 1e18)
                          .unset("what steps gives"));
  visit(train.epochs, field("epochs", "Passes over the training data, rounded up to whole steps")
                          .above(0)
                          .to(1e6)
                          .unset("what steps gives"));
  visit(train.global_batch_size,
        field("global_batch_size",
              "Sequences per step over all ranks; micro_batch_size and micro_batch_num give it too")
            .count(1, 1e9)
            .required_unless(
                "micro_batch_size+micro_batch_num|micro_batch_size+gradient_accumulation_steps"));
  visit(train.micro_batch_size,
        field("micro_batch_size", "Sequences per forward pass of one rank")
            .from(1)
            .to(1 << 20)
            .unset("global_batch_size / (data_parallel x micro_batch_num)"));
  visit(train.micro_batch_num,
        field("micro_batch_num",
              "Micro-batches of one rank in one step; also written gradient_accumulation_steps")
            .from(1)
            .to(1 << 24)
            .unset("global_batch_size / (data_parallel x micro_batch_size)"));
  visit(train.rampup_batch_size,
        field("rampup_batch_size",
              "[start, increment, samples]: the batch grows from start to global_batch_size by "
              "increment, in equal parts of the first samples")
            .count(0, 1e12)
            .unset("global_batch_size from the first step"));
  visit(train.decrease_batch_size_if_needed,
        field("decrease_batch_size_if_needed",
              "Round a batch down to a multiple of micro_batch_size x data_parallel instead of "
              "refusing it"));
  visit(train.seed, field("seed", "Seed of initialisation, dropout and data order"));
  visit(train.validate_every,
        field("validate_every", "Steps between validations; 0: only after the last").count(0));
  visit(
      train.on_bad_loss,
      field("on_bad_loss", "If the loss or a gradient is NaN or infinite: stop, or skip the step"));
  visit(train.max_bad_steps,
        field("max_bad_steps",
              "With on_bad_loss skip: steps in a row that are skipped before the run ends")
            .from(1)
            .to(1e12));
  visit(train.check_replicas_every,
        field("check_replicas_every", "Steps between comparisons of the replicas; 0: never")
            .count(0));
  visit(train.deterministic_mode,
        field("deterministic_mode",
              "Repeated runs are bit-identical, unless products are timed. false: on CUDA, cuDNN's "
              "attention may add up its gradients in any order, which is faster"));
}

template <class Visitor>
void fields(Visitor& visit, Is<OptimizerConfig> auto& optimizer) {
  visit(optimizer.type, field("type", "The update rule"));
  visit(optimizer.beta1,
        field("beta1", "Decay of the first moment, the mean of gradients").from(0).below(1));
  visit(optimizer.beta2, field("beta2", "Decay of the second moment").from(0).below(1));
  visit(optimizer.eps, field("eps", "Added to the denominator").above(0));
  visit(optimizer.weight_decay,
        field("weight_decay", "Weight decay; none on biases and norms").from(0));
  visit(optimizer.weight_decay_form,
        field("weight_decay_form", "decoupled; coupled: added to the gradient before momentum"));
  visit(optimizer.start_weight_decay,
        field("start_weight_decay", "Weight decay at step 0").from(0).unset("weight_decay"));
  visit(optimizer.end_weight_decay,
        field("end_weight_decay", "Weight decay after the rise").from(0).unset("weight_decay"));
  visit(optimizer.weight_decay_incr_style, field("weight_decay_incr_style", "How it rises"));
  visit(optimizer.weight_decay_incr_steps,
        field("weight_decay_incr_steps", "Steps over which weight decay rises")
            .count(1, 1e12)
            .unset("train.steps"));
  visit(optimizer.momentum, field("momentum", "Momentum; 0: none is kept").from(0).below(1));
  visit(optimizer.main_grads_dtype,
        field("main_grads_dtype", "Type of sums of gradients over micro-batches: fp32 or bf16"));
  visit(optimizer.main_params_dtype,
        field("main_params_dtype", "Type of masters of matrices: fp32, or bf16 rounded at random"));
  visit(optimizer.exp_avg_dtype,
        field("exp_avg_dtype", "Type of the first moment, fp32 or bf16 rounded at random"));
  visit(optimizer.exp_avg_sq_dtype, field("exp_avg_sq_dtype", "Type of the second one"));
  visit(optimizer.clip_grad_norm,
        field("clip_grad_norm", "Largest global gradient norm; 0: no clipping").from(0));
  visit(optimizer.ema_decay,
        field("ema_decay", "Decay per update of the average of weights that is kept; 0: none")
            .from(0)
            .below(1));
  visit(optimizer.qk_clip_threshold,
        field("qk_clip_threshold",
              "Largest score of a head in a step above which its queries and keys are scaled down")
            .above(0)
            .unset("none"));
  visit(optimizer.qk_clip_alpha,
        field("qk_clip_alpha", "Exponent of that factor for queries; that for keys is 1 less it")
            .from(0)
            .to(1));
  visit(optimizer.groups,
        field("groups",
              "Parameters with another rule, rate or decay: {match, type, lr_mult, wd_mult}. The "
              "first entry whose pattern takes a name decides (`*` any characters, `?` one)"));
  visit.section(optimizer.muon, field("muon", "Muon, which updates matrices as a whole"));
}

template <class Visitor>
void fields(Visitor& visit, Is<LrScheduleConfig> auto& schedule) {
  visit(schedule.style, field("style", "Shape of the learning rate after the warm-up"));
  visit(schedule.max_lr, field("max_lr", "Highest learning rate").from(0).required());
  visit(schedule.min_lr, field("min_lr", "Learning rate after the decay").from(0));
  visit(schedule.init_lr, field("init_lr", "Learning rate at the start of the warm-up").from(0));
  visit(schedule.warmup_steps,
        field("warmup_steps", "Steps of linear rise to max_lr").count(0, 1e12));
  visit(schedule.warmup_ratio, field("warmup_ratio", "Warm-up as a part of all steps, rounded up")
                                   .from(0)
                                   .below(1)
                                   .unset("what warmup_steps gives"));
  visit(
      schedule.decay_steps,
      field("decay_steps", "Step at which min_lr is reached").count(1, 1e12).unset("train.steps"));
  visit(schedule.wsd_decay_steps, field("wsd_decay_steps", "WSD: steps of the final decay")
                                      .count(1, 1e12)
                                      .unset("required with style WSD"));
  visit(schedule.wsd_decay_style, field("wsd_decay_style", "WSD: shape of the final decay"));
}

template <class Visitor>
void fields(Visitor& visit, Is<Config> auto& config) {
  visit.section(config.model, field("model", "The network"));
  visit.section(config.data, field("data", "Training and validation data"));
  visit.section(config.train, field("train", "Length and batch of the run"));
  visit.section(config.optimizer, field("optimizer", "The update rule and its constants"));
  visit.section(config.lr_schedule, field("lr_schedule", "The learning rate over the run"));
  visit.section(config.precision, field("precision", "Number formats"));
  visit.section(config.parallel, field("parallel", "How ranks and threads share the work"));
  visit.section(config.moe, field("moe", "Mixture of experts"));
  visit.section(config.recompute, field("recompute", "Activations recomputed instead of kept"));
  visit.section(config.offload, field("offload", "Activations and weights kept on the host"));
  visit.section(config.hooks, field("hooks", "Choices that Megatron-Core takes as functions"));
  visit.section(
      config.cluster,
      field("cluster", "Speed of one rank while all ranks run, for the planned step time"));
  visit.section(config.log, field("log", "Messages and traces"));
  visit.section(config.output, field("output", "Files that the run writes"));
  visit.section(config.checkpoint, field("checkpoint", "Saving the state of the run"));
}

// The field list of the section optimizer.muon.

template <class Visitor>
void fields(Visitor& visit, Is<MuonConfig> auto& muon) {
  visit(muon.momentum, field("momentum", "Decay of the mean of gradients").from(0).below(1));
  visit(muon.nesterov, field("nesterov", "Look one step of the momentum ahead"));
  visit(muon.coefficients,
        field("coefficients",
              "Of the steps that make a matrix orthogonal: a set by name, or a list of [a, b, c]"));
  visit(muon.steps, field("steps",
                          "How many steps; beyond the set, simple and quintic begin again, "
                          "the others repeat their last")
                        .from(1)
                        .to(100)
                        .unset("the length of the set; simple: 5"));
  visit(muon.scale, field("scale",
                          "How long a step is, by the rows m and columns n of a matrix: 0.2 "
                          "sqrt(max(m, n)), so that AdamW's rates fit; sqrt(max(m, n)); "
                          "sqrt(max(1, m / n)); sqrt(m / n)"));
  visit(muon.scale_factor, field("scale_factor", "Times that").above(0));
  visit(muon.eps, field("eps", "Least norm that is divided by").from(0));
  visit(muon.ns_dtype, field("ns_dtype",
                             "Type of the products; auto: bf16 on CUDA if "
                             "precision.compute has 16 bits, else fp32"));
  visit(muon.items,
        field("items",
              "What one matrix is instead of one parameter: gate over up, q over k over "
              "v, each head; a list"));
}

/// The visitor that implements visit_values.
template <class Each>
class PathVisitor {
 public:
  PathVisitor(Each& each, std::string path) : each_(each), path_(std::move(path)) {}

  template <class Value>
  void operator()(const Value& value, const Field& field) {
    const std::size_t length = path_.size();
    each_(path_.append(field.key), value, field);
    path_.resize(length);
  }
  template <class Section>
  void section(const std::optional<Section>& value, const Field& field) {
    if (value) return section(*value, field);
    (*this)(std::nullopt, field);
  }
  template <class Section>
  void section(const Section& value, const Field& field) {
    const std::size_t length = path_.size();
    path_.append(field.key);
    if constexpr (requires { each_.section(path_, field); }) each_.section(path_, field);
    path_ += '.';
    fields(*this, value);
    path_.resize(length);
  }

 private:
  Each& each_;
  std::string path_;
};

/// Calls each(path, value, field) for every value of a section and its nested sections, in the
/// order of the schema. `path` is the section's dotted path with a dot at its end, or "". A
/// std::optional and a list of sections are one value each; an optional section that is not given
/// is std::nullopt. If `each` has a member `section`, each.section(path, field) is called before
/// the values of a section.
template <class Section, class Each>
void visit_values(const Section& section, Each&& each, const std::string& path = "") {
  PathVisitor visitor(each, path);
  fields(visitor, section);
}

}  // namespace trainctl
