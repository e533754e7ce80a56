// Activations that are recomputed, or offloaded to the host.
#include "base/text.h"
#include "config/schema/words.h"
#include "plan/rules/check.h"
#include "plan/tables/recompute_form.h"

namespace trainctl {

namespace {

const char* partial_path = "recompute.num_microbatches_with_partial_activation_checkpoints";

void check_layers(const Facts& facts, Check& check) {
  const auto& layers = facts.config.recompute.layers_per_stage;
  const char* path = "recompute.layers_per_stage";
  if (!layers || !check.clean({path})) return;
  if (facts.config.recompute.layers) {
    return check.error("recompute-layers", path,
                       "layers and layers_per_stage both say which layers are recomputed",
                       "remove one of them");
  }
  const auto count = static_cast<std::int64_t>(layers->size());
  if (count != facts.mesh.pp) {
    return check.error("recompute-layers", path,
                       formatted("expected one number for each of {}, found {}",
                                 named("pipeline_stages", facts.mesh.pp), count),
                       formatted("give {}, or leave the list out to recompute all layers",
                                 counted(facts.mesh.pp, "number")));
  }
  for (const std::int64_t held : *layers) {
    if (held >= 0 && held <= facts.config.model.num_layers) continue;
    return check.error("recompute-layers", path,
                       formatted("each number must be from 0 to {}, found {}",
                                 named("model.num_layers", facts.config.model.num_layers), held),
                       formatted("set each number to at most {}", facts.config.model.num_layers));
  }
}

constexpr const char* form_words =
    "full, or words joined by +: norms, qkv, attention, projection, mlp, activations";

void check_select(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  const bool reads = recompute.select == "auto" || parse_form(recompute.select).has_value();
  if (!reads && check.clean({"recompute.select"})) {
    check.error("recompute-select", "recompute.select",
                formatted("cannot read '{}'", recompute.select),
                std::string("write auto, ") + form_words);
  }
  if (!recompute.layers || !check.clean({"recompute.layers", "model.num_layers"})) return;
  const LayerForms forms = parse_layer_forms(*recompute.layers, facts.config.model.num_layers);
  if (forms.error.empty()) return;
  check.error("recompute-select", "recompute.layers",
              formatted("{}; it needs a form for each of {}", forms.error,
                        named("model.num_layers", facts.config.model.num_layers)),
              formatted("a form is none, {}; *n repeats it: full*2, norms, none", form_words));
}

/// Checks the keys that select: auto needs, and those whose values it decides.
void check_auto(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  if (recompute.select != "auto") {
    return check.no_effect("recompute.memory_limit", recompute.memory_limit.has_value(),
                           "recompute.select is not auto");
  }
  const ClusterConfig& cluster = facts.config.cluster;
  if (!recompute.memory_limit && check.clean({"recompute.memory_limit"})) {
    check.error("recompute-auto", "recompute.memory_limit",
                "select: auto needs a memory_limit to fit in", "give the GiB of a rank");
  }
  const bool rates =
      cluster.matmul_flops && cluster.memory_bandwidth && cluster.latency && cluster.bandwidth;
  if (!rates && !cluster.device) {
    check.error("recompute-auto", "recompute.select",
                "select: auto compares times, which need the rates of section cluster",
                "give cluster.device, or all four rates of section cluster");
  }
  const auto decided = [&](const char* path, bool given) {
    if (!given || !check.clean({path})) return;
    check.error("recompute-auto", path, "select: auto decides this for each layer",
                "remove it, or write the form in select");
  };
  decided("recompute.layers", recompute.layers.has_value());
  decided("recompute.layers_per_stage", recompute.layers_per_stage.has_value());
  decided(partial_path, recompute.num_microbatches_with_partial_activation_checkpoints.has_value());
}

void check_slices(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  const char* path = "recompute.slice_activation";
  if (recompute.slice_activation && facts.parallel().sequence_parallel && facts.mesh.tp > 1) {
    check.no_effect(path, true, "sequence_parallel has split the saved activations already");
  } else if (recompute.slice_activation && facts.mesh.tp > 1 && check.clean({path})) {
    const std::int64_t elements =
        facts.batch.micro_batch_size * facts.model.seq_length / facts.mesh.cp * facts.model.hidden;
    if (elements % facts.mesh.tp != 0) {
      check.error("recompute-slice", path,
                  formatted("the input of a layer has {} values, which must be divisible by {}",
                            elements, named("tensor_parallel", facts.mesh.tp)),
                  "set slice_activation to false");
    }
  }
  if (facts.mesh.tp > 1) return;
  check.no_effect(path, recompute.slice_activation, "tensor_parallel is 1");
  check.no_effect("recompute.mp_comm_recompute", !recompute.mp_comm_recompute,
                  "tensor_parallel is 1");
}

/// Only 16-bit copies of weights can be offloaded: the optimizer updates all others.
void check_weights(const Facts& facts, Check& check) {
  const auto refuse = [&](const std::string& rule, const std::string& help) {
    check.error("offload-weights", "offload.weights", "weights can be offloaded if " + rule, help);
  };
  const ComputeType masters = facts.config.optimizer.main_params_dtype;
  if (resolve_compute(facts.config.precision) == ComputeType::fp32) {
    refuse(
        "they are copies in 16 bits, but precision.compute is fp32: the optimizer updates them on "
        "the device",
        "set precision.compute to bf16, or offload.weights to false");
  } else if (masters != ComputeType::fp32) {
    refuse(formatted("they are copies in 16 bits, but main_params_dtype is {}: the optimizer "
                     "updates them on the device",
                     word_of(masters)),
           "set main_params_dtype to fp32, or offload.weights to false");
  } else if (facts.parallel().parallel_optimizer.enable) {
    refuse(
        "this rank updates every one, but parallel_optimizer.enable is true: they come from other "
        "ranks",
        "set offload.weights to false, and optimizer_level to level3 to free weights after use");
  }
}

void check_offload(const Facts& facts, Check& check) {
  const OffloadConfig& offload = facts.config.offload;
  if (!offload.enable || !check.clean({"offload.enable", "offload.num_layers", "model.num_layers"}))
    return;
  const std::int64_t layers = facts.config.model.num_layers;
  if (offload.num_layers < 0 || offload.num_layers >= layers) {
    check.error("offload-layers", "offload.num_layers",
                formatted("{} must be from 0 to {}, below {}",
                          named("offload.num_layers", offload.num_layers), layers - 1,
                          named("model.num_layers", layers)),
                formatted("set offload.num_layers to at most {}", layers - 1));
  } else if (offload.num_layers == 0) {
    check.no_effect("offload.enable", true, "offload.num_layers is 0");
  } else if (!offload.activations && !offload.weights) {
    check.no_effect("offload.enable", true, "neither activations nor weights are offloaded");
  } else if (offload.weights) {
    check_weights(facts, check);
  }
  const RecomputeConfig& recompute = facts.config.recompute;
  const bool picks = recompute.enable && recompute.select == "auto";
  check.no_effect("offload.memory_limit", offload.memory_limit && !(picks && offload.activations),
                  picks ? "activations are not offloaded" : "recompute.select is not auto");
}

}  // namespace

void check_recompute(const Facts& facts, Check& check) {
  const RecomputeConfig& recompute = facts.config.recompute;
  check_offload(facts, check);
  if (!recompute.enable || !facts.mesh_is_clean(check) || !check.clean({"recompute.enable"}))
    return;
  check_select(facts, check);
  check_auto(facts, check);
  check_layers(facts, check);
  check_slices(facts, check);
  if (!facts.parallel().parallel_optimizer.enable) {
    check.no_effect("recompute.parallel_optimizer_comm_recompute",
                    recompute.parallel_optimizer_comm_recompute,
                    "parallel_optimizer.enable is false");
  }
  if (facts.mesh.pp == 1) {
    check.no_effect(partial_path,
                    recompute.num_microbatches_with_partial_activation_checkpoints.has_value(),
                    "pipeline_stages is 1");
  }
}

}  // namespace trainctl
