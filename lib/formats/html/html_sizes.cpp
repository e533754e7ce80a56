#include "base/units.h"
#include "config/schema/words.h"
#include "formats/html/html_parts.h"
#include "formats/print/memory_fit.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

std::string factors_text(const Mesh& mesh) {
  std::string text;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
    text += (text.empty() ? "" : " × ") + std::string(name_of(axis)) + " " +
            std::to_string(mesh.size(axis));
  }
  if (mesh.ep > 1 || mesh.etp != mesh.tp) {
    text += ", experts: etp " + std::to_string(mesh.etp) + " × ep " + std::to_string(mesh.ep) +
            " × edp " + std::to_string(mesh.edp);
  }
  return text;
}

std::int64_t sequences_of(const Plan& plan) {
  return plan.micro_batch_size * plan.microbatches * plan.mesh.dp;
}

std::string memory_fact(const PrintInput& input) {
  const Plan& plan = input.plan;
  const MemoryFit fit = memory_fit(input);
  const std::string where = plan.map.stages > 1 ? "rank of the fullest stage: " : "rank: ";
  return fact("Memory", format_bytes(plan.most_memory().device()), where + fit_text(fit));
}

class Sizes {
 public:
  void add(const std::string& name, std::int64_t whole, std::int64_t of_rank = -1) {
    rows_ += "<tr>" + cell(name) + cell(format_grouped(whole), "n") +
             cell(of_rank < 0 ? "" : format_grouped(of_rank), "n") + "</tr>\n";
  }
  std::string table(const std::string& title) {
    return "<div><h3>" + title + "</h3>\n<table class=\"wide\">" +
           head_row({"", "#whole", "#one rank"}) + "<tbody>\n" + rows_ + "</tbody></table></div>\n";
  }

 private:
  std::string rows_;
};

/// Where layers have different splits, of the first one.
std::string model_sizes(const Plan& plan) {
  const ModelShape& model = plan.model;
  const LocalShape local = plan.local_of(1);
  Sizes sizes;
  sizes.add("layers", model.layers);
  sizes.add("hidden size", model.hidden);
  if (const int plain = first_block_with(model, false); plain > 0) {
    sizes.add("MLP width", plan.form_of(plain).mlp().ffn, plan.local_of(plain).ffn);
  }
  sizes.add("attention heads", model.heads, local.heads);
  sizes.add("heads of keys and values", model.kind(0).kv_heads, local.kv_heads);
  sizes.add("size of a head", model.head_dim);
  if (const int routed = first_block_with(model, true); routed > 0) {
    sizes.add("experts of a layer", model.experts, plan.local_of(routed).experts);
    sizes.add("experts of a token", model.topk);
  }
  sizes.add("vocabulary", model.vocab);
  if (model.padded_vocab != model.vocab || plan.local.vocabulary != model.vocab) {
    sizes.add("rows of the head", model.padded_vocab, plan.local.vocabulary);
  }
  return sizes.table("Model");
}

std::string batch_sizes(const Plan& plan) {
  Sizes sizes;
  const std::int64_t rows = plan.micro_batch_size * plan.microbatches;
  sizes.add("sequence length", plan.model.seq_length, plan.model.seq_length / plan.mesh.cp);
  sizes.add("sequences of a step", sequences_of(plan), rows);
  if (plan.ramp.size() > 1) sizes.add("sequences of the first step", plan.ramp.front().batch);
  sizes.add("micro-batches of a step", plan.microbatches * plan.mesh.dp, plan.microbatches);
  sizes.add("sequences of a micro-batch", plan.micro_batch_size);
  sizes.add("tokens of a step", plan.tokens_per_step());
  sizes.add("steps", plan.steps);
  return sizes.table("Batch");
}

}  // namespace

std::string fact(const std::string& name, const std::string& value, const std::string& more) {
  return "<div><span>" + escaped(name) + "</span><b>" + escaped(value) + "</b><small>" +
         escaped(more) + "</small></div>\n";
}

std::string facts_html(const PrintInput& input) {
  const Plan& plan = input.plan;
  return "<div class=\"facts\">\n" +
         fact("World", grouped_count(plan.mesh.world_size(), "rank"),
              factors_text(plan.mesh) + ", " + device_text(plan)) +
         fact("Parameters", format_count(static_cast<double>(plan.parameter_count())),
              std::string(word_of(plan.model.family)) + ", " +
                  grouped_count(plan.model.layers, "layer") + ", " +
                  std::string(name_of(plan.compute))) +
         fact("Step", grouped_count(sequences_of(plan), "sequence"),
              grouped_count(plan.microbatches, "micro-batch") + " of " +
                  std::to_string(plan.micro_batch_size) + " per rank, " +
                  format_count(static_cast<double>(plan.tokens_per_step())) + " tokens") +
         memory_fact(input) +
         fact("Schedule", plan.schedule, "bubble " + percent(plan.bubble_fraction)) +
         fact("Work", operations_text(plan.flops.total()), "per step over all ranks") +
         (plan.time ? fact("Time", format_seconds(plan.time->step()),
                           plan.time->on_device ? "per step on " + plan.time->on_device->device
                                                : "per step at the rates of section cluster")
                    : "") +
         "</div>\n";
}

std::string sizes_html(const Plan& plan) {
  return "<section id=\"sizes\">\n<h2>Sizes</h2>\n<div class=\"columns\">\n" + model_sizes(plan) +
         batch_sizes(plan) + "</div>\n</section>\n";
}

}  // namespace trainctl
