// Devices: the device of a run, cuDNN's attention, and the figures of section cluster.

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "config/devices/figures.h"
#include "plan/rules/check.h"
#include "plan/rules/resolve.h"

namespace trainctl {

namespace {

/// Extents of attention with whole sequences, which a rank has unless sequences or heads are split.
AttentionExtents extents_of(const Facts& facts) {
  const bool whole = facts.operators.any_attention(SplitBy::whole);
  const std::int64_t ranks = whole ? 1 : std::max<std::int64_t>(1, facts.mesh.tp);
  return {.sequences = facts.batch.micro_batch_size,
          .length = facts.model.seq_length,
          .heads = std::max<std::int64_t>(1, facts.model.heads / ranks),
          .kv_heads = std::max<std::int64_t>(1, facts.model.kind(0).kv_heads / ranks),
          .head_dim = facts.model.head_dim,
          .ordered = facts.config.train.deterministic_mode};
}

bool alike_in_all_blocks(const OperatorSplits& operators) {
  const auto& blocks = operators.blocks;
  return std::all_of(blocks.begin(), blocks.end(), [&](const BlockSplit& block) {
    return block.attention == blocks.front().attention;
  });
}

}  // namespace

std::string why_not_cudnn(const Facts& facts) {
  const Config& config = facts.config;
  const ComputeType compute = resolve_compute(config.precision);
  const AttentionExtents extents = extents_of(facts);
  if (resolve_device(config.parallel, facts.site) != DeviceKind::cuda) return "device is not cuda";
  if (compute == ComputeType::fp32) return "precision.compute is fp32";
  if (extents.head_dim != 64 && extents.head_dim != 128) {
    return formatted("heads have {} features, not 64 or 128", extents.head_dim);
  }
  if (extents.length % 128 != 0) {
    return formatted("seq_length ({}) is not a multiple of 128", extents.length);
  }
  if (facts.model.attention_dropout > 0) return "attention_dropout is above 0";
  if (facts.model.attention_cap > 0) return "attn_logit_softcapping caps scores";
  const auto limited = [](const LayerKind& kind) { return kind.limits.any(); };
  if (std::ranges::any_of(facts.model.kinds, limited))
    return "queries see only a window or a chunk of the keys";
  if (config.optimizer.qk_clip_threshold) {
    return "qk_clip_threshold needs the largest score of each head";
  }
  if (config.data.reset_attention_mask) return "reset_attention_mask keeps documents apart";
  if (facts.mesh.cp > 1) return "context-parallel ranks share sequences";
  if (facts.operators.any_attention(SplitBy::tokens) || !alike_in_all_blocks(facts.operators)) {
    return "operator_splits split attention otherwise than by heads";
  }
  const std::int64_t bytes = attention_bytes(attention_part(extents));
  if (bytes > max_attention_bytes) {
    return formatted("it would need {} MiB besides its operands, more than {}", bytes >> 20,
                     max_attention_bytes >> 20);
  }
  return "";
}

std::optional<AttentionExtents> resolve_cudnn(const Facts& facts) {
  const AttentionBackend backend = facts.parallel().attention_backend;
  const bool asked = backend == "cudnn" || (backend == "auto" && facts.site.cudnn);
  if (!asked || !why_not_cudnn(facts).empty()) return std::nullopt;
  return extents_of(facts);
}

namespace {

/// The combinations of deterministic_mode with other options.
void check_determinism(const Facts& facts, Check& check) {
  const char* path = "train.deterministic_mode";
  const char* products = "parallel.product_algorithms";
  const bool asked = facts.config.train.deterministic_mode;
  const bool on_cuda = resolve_device(facts.parallel(), facts.site) == DeviceKind::cuda;
  const bool timed = facts.parallel().product_algorithms == "timed";
  if (on_cuda && timed && asked && check.given(path) && check.clean({path, products})) {
    check.error("deterministic-timed", products,
                "product_algorithms timed may choose other algorithms in each run, but "
                "deterministic_mode is true" +
                    check.place_of(path),
                "set product_algorithms to proposed, or leave deterministic_mode out");
  }
  const bool known = facts.mesh_is_clean(check) &&
                     check.clean({"model", "train.micro_batch_size", "train.global_batch_size",
                                  "parallel.device", "parallel.operator_splits"});
  if (asked || !known) return;
  const bool own = facts.parallel().attention_backend == "own";
  const std::string reason = own ? "attention_backend is own" : why_not_cudnn(facts);
  check.no_effect(path, !reason.empty(),
                  "only cuDNN's attention has a form that is not deterministic, and " + reason);
}

void check_sharing(const Facts& facts, Check& check) {
  const char* path = "parallel.share_devices";
  const bool threads = facts.site.ranks_are_threads && facts.site.world_size > 1;
  if (facts.parallel().share_devices != DeviceSharing::nccl || !threads ||
      resolve_device(facts.parallel(), facts.site) != DeviceKind::cuda) {
    return;
  }
  check.error("share-devices", path,
              "share_devices nccl needs a process for each rank, since NCCL knows a process by one "
              "name, but the ranks are threads (--local-ranks)",
              "start them with trainctl launch or mpirun, or set share_devices to true");
}

/// Options that need the largest score of each head, which only some kernels compute.
void check_qk_clip(const Facts& facts, Check& check) {
  const char* path = "optimizer.qk_clip_threshold";
  const OptimizerConfig& optimizer = facts.config.optimizer;
  const char* alpha = "optimizer.qk_clip_alpha";
  check.rule(alpha, optimizer.qk_clip_alpha >= 0 && optimizer.qk_clip_alpha <= 1,
             optimizer.qk_clip_alpha, "in [0, 1]");
  check.no_effect(
      alpha,
      !optimizer.qk_clip_threshold && optimizer.qk_clip_alpha != OptimizerConfig{}.qk_clip_alpha,
      "qk_clip_threshold is not given");
  if (!optimizer.qk_clip_threshold) return;
  const double threshold = *optimizer.qk_clip_threshold;
  check.rule(path, threshold > 0, threshold, "above 0");
  if (!check.clean({"model", "parallel.device"})) return;
  if (std::ranges::any_of(facts.model.kinds, &LayerKind::qk_norm)) {
    check.error("qk-clip", path,
                "qk_clip_threshold scales the rows that make queries and keys, but qk_layernorm "
                "brings these back to their length" +
                    check.place_of("model.qk_layernorm"),
                "leave qk_clip_threshold out: norms bound the scores");
  } else if (facts.model.attention_cap > 0 &&
             resolve_device(facts.parallel(), facts.site) == DeviceKind::cuda) {
    check.error(
        "qk-clip", path,
        "qk_clip_threshold with attn_logit_softcapping is not built for CUDA: its kernels do "
        "not keep the largest score before the cap" +
            check.place_of("model.attn_logit_softcapping"),
        "leave one of the two out, or set parallel.device to cpu");
  }
}

}  // namespace

void check_attention(const Facts& facts, Check& check) {
  const char* path = "parallel.attention_backend";
  const bool on_cuda = resolve_device(facts.parallel(), facts.site) == DeviceKind::cuda;
  const char* margin = "parallel.product_sm_margin";
  const ParallelConfig& parallel = facts.parallel();
  check_determinism(facts, check);
  check_qk_clip(facts, check);
  check_sharing(facts, check);
  const std::pair<const char*, bool> choices[] = {
      {path, parallel.attention_backend != "auto"},
      {"parallel.product_algorithms", parallel.product_algorithms != "proposed"},
      {margin, parallel.product_sm_margin > 0},
      {"parallel.share_devices", shares(parallel.share_devices)}};
  for (const auto& [choice, differs] : choices) {
    check.no_effect(choice, !on_cuda && differs, "the device is the CPU");
  }
  const bool alone = on_cuda && facts.mesh_is_clean(check) && facts.mesh.world_size() == 1;
  check.no_effect("parallel.head_chunk",
                  parallel.head_chunk.has_value() && facts.model.whole_logits,
                  "model.cross_entropy_loss_fusion is false, so all logits exist at once");
  check.no_effect(margin, alone && parallel.product_sm_margin > 0, "one rank has no collectives");
  if (!on_cuda || facts.parallel().attention_backend != "cudnn") return;
  const bool known = facts.mesh_is_clean(check) &&
                     check.clean({"model", "train.micro_batch_size", "parallel.device",
                                  "parallel.operator_splits", path});
  const std::string reason = known ? why_not_cudnn(facts) : "";
  if (reason.empty()) return;
  check.error("attention-backend", path, "attention_backend is cudnn, but " + reason,
              "set attention_backend to auto, which takes cuDNN where it can, or to own");
}

// Section cluster: devices, software and networks.

namespace {

void check_rates(const ClusterConfig& cluster, Check& check) {
  const std::pair<const char*, bool> rates[] = {
      {"matmul_flops", cluster.matmul_flops.has_value()},
      {"memory_bandwidth", cluster.memory_bandwidth.has_value()},
      {"latency", cluster.latency.has_value()},
      {"bandwidth", cluster.bandwidth.has_value()}};
  std::string first;
  std::vector<std::string> missing;
  for (const auto& [name, given] : rates) {
    if (!given) missing.emplace_back(name);
    if (given && first.empty()) first = name;
  }
  const bool clean = check.clean(
      {"cluster.matmul_flops", "cluster.memory_bandwidth", "cluster.latency", "cluster.bandwidth"});
  if (first.empty() || !clean) return;
  if (cluster.device) {
    return check.error("cluster-device", "cluster." + first,
                       formatted("cluster.device{} and the rates of a rank exclude each other",
                                 check.place_of("cluster.device")),
                       "remove cluster.device, or the four rates");
  }
  if (missing.empty()) return;
  check.error(
      "cluster-rates", "cluster." + first,
      "the estimate of the step time needs all four rates; missing: " + joined(missing, ", "),
      "train once without this section: the run measures all four rates and writes them to "
      "measured.json");
}

/// Reports the first mistake in a file of figures, with its position there.
void tell_mistake(const char* path, const Diagnostics& mistakes, Check& check) {
  const Diagnostic& first = mistakes.list().front();
  const std::size_t more = mistakes.list().size() - 1;
  const std::string key = first.path.empty() ? "" : first.path + ": ";
  check.error("device-file", path,
              formatted("{}: {}{}{}", first.place.to_string(), key, first.message,
                        more > 0 ? formatted(" (and {} more)", more) : ""),
              first.help);
}

void tell_unknown(const char* path, const std::string& name, std::span<const KnownFile> files,
                  Check& check) {
  const std::vector<std::string> names = names_of(files);
  const std::string near = nearest(name, names);
  check.error(
      "device-file", path,
      formatted("\"{}\" is neither a known name nor a file that can be read", name),
      near.empty() ? "known are " + alternatives(names) : formatted("did you mean {}?", near));
}

/// Products of the run's dtype may have guessed figures, but its attention kernel needs real ones.
void check_figures(const Facts& facts, const DeviceFigures& device, const SoftwareFigures& software,
                   Check& check) {
  const char* path = "cluster.device";
  const bool fp32 = resolve_compute(facts.config.precision) == ComputeType::fp32;
  const std::string type = fp32 ? "fp32" : "bf16";
  const auto products = device.products.find(type);
  if (products != device.products.end() && products->second.guessed) {
    check.warning(
        "device-guess", path,
        formatted(
            "{} has no figures of products in {}: they are guessed at {} TFLOP/s, those in {}{}",
            device.name, type, printed("%.4g", products->second.peak * 1e-12),
            fp32 ? "bf16" : "fp32", device.cuda ? (fp32 ? " / 16" : " x 16") : ""),
        "`trainctl bench device` measures them, or set precision.compute to " +
            std::string(fp32 ? "bf16" : "fp32"));
  }
  const std::string& kernel = software.attention;
  if (kernel == "scores" || device.attention.contains(kernel)) return;
  std::vector<std::string> kernels{"scores"};
  for (const auto& [name, figures] : device.attention) kernels.push_back(name);
  check.error("device-file", "cluster.software",
              formatted("{} has the attention kernel \"{}\", of which {} has no figures",
                        software.name, kernel, device.name),
              "it has " + alternatives(kernels));
}

void check_levels(const Facts& facts, Check& check) {
  const char* path = "cluster.levels";
  const auto& levels = facts.config.cluster.levels;
  check.no_effect(path, !levels.empty() && !facts.config.cluster.device,
                  "only cluster.device has levels");
  if (!check.clean({path})) return;
  std::int64_t below = 1;
  for (std::size_t index = 0; index < levels.size(); ++index) {
    const NetworkLevel& level = levels[index];
    const bool last = index + 1 == levels.size();
    const std::string name = "level " + level.name;
    if (level.ranks == 0 && !last) {
      return check.error("cluster-levels", path, name + " does not say how many ranks it joins",
                         "only the last level may leave ranks out: it joins all");
    }
    if (level.ranks == 0) return;
    if (level.ranks % below != 0 || level.ranks == below) {
      return check.error("cluster-levels", path,
                         formatted("{} joins {} ranks, which must be a multiple of the {} below it",
                                   name, level.ranks, below),
                         formatted("use for example {}", 2 * below));
    }
    below = level.ranks;
  }
  const std::int64_t world = facts.site.world_size;
  if (!levels.empty() && below < world) {
    check.error("cluster-levels", path,
                formatted("the last level joins {} ranks, but there are {}", below, world),
                "leave its ranks out, so that it joins all");
  }
}

}  // namespace

void check_cluster(const Facts& facts, Check& check) {
  const ClusterConfig& cluster = facts.config.cluster;
  // A search of layouts uses device_memory on any device: plan --search needs cluster.device, and
  // dynamic_programming is a search_mode, which stays given after its result has been applied.
  const bool searched = cluster.device || check.given("parallel.search_mode");
  check.no_effect("cluster.device_memory",
                  cluster.device_memory && facts.config.parallel.device == "cpu" && !searched,
                  "parallel.device is cpu");
  check_rates(cluster, check);
  check_levels(facts, check);
  check.no_effect("cluster.price_per_hour", cluster.price_per_hour && !cluster.device,
                  "without cluster.device nothing is priced");
  check.no_effect("cluster.software", cluster.software != "trainctl" && !cluster.device,
                  "without cluster.device no software is compared");
  if (!cluster.device) return;
  if (!check.clean({"cluster.device", "cluster.software", "cluster.matmul_flops",
                    "cluster.memory_bandwidth", "cluster.latency", "cluster.bandwidth"})) {
    return;
  }
  const std::string_view device = device_text(cluster);
  const std::string_view software = software_text(cluster);
  if (device.empty()) tell_unknown("cluster.device", *cluster.device, known_devices(), check);
  if (software.empty()) tell_unknown("cluster.software", cluster.software, known_software(), check);
  if (device.empty() || software.empty()) return;
  Diagnostics mistakes;
  const DeviceFigures figures = read_device(device, *cluster.device, mistakes);
  if (mistakes.has_errors()) return tell_mistake("cluster.device", mistakes, check);
  const SoftwareFigures of_software = read_software(software, cluster.software, mistakes);
  if (mistakes.has_errors()) return tell_mistake("cluster.software", mistakes, check);
  if (check.clean({"precision"})) check_figures(facts, figures, of_software, check);
}

}  // namespace trainctl
