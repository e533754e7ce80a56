// Parallel degrees against the world size, and the order in which ranks are numbered.
#include <algorithm>
#include <limits>
#include <vector>

#include "config/schema/most_ranks.h"
#include "plan/rules/check.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_product = std::numeric_limits<std::int64_t>::max();

struct Size {
  const char* key;
  const char* path;
  std::int64_t value;
};

std::vector<Size> dense_sizes(const Facts& facts) {
  const ParallelConfig& parallel = facts.parallel();
  return {{"tensor_parallel", "parallel.tensor_parallel", parallel.tensor_parallel},
          {"pipeline_stages", "parallel.pipeline_stages", parallel.pipeline_stages},
          {"context_parallel", "parallel.context_parallel", parallel.context_parallel}};
}

/// " = 12"; a product above any possible number of ranks is not written out.
std::string equals(std::int64_t product) {
  return product <= most_ranks ? " = " + std::to_string(product)
                               : " (more than " + std::to_string(most_ranks) + ")";
}

std::string world_of(std::int64_t world) { return named("the world size", world); }

std::string factors_of(const std::vector<Size>& sizes) {
  std::string text;
  for (const Size& size : sizes) {
    text += (text.empty() ? "" : " x ") + named(size.key, size.value);
  }
  return text;
}

void check_ranges(const ParallelConfig& parallel, Check& check) {
  check.range("parallel.device_num", parallel.device_num.value_or(1), 1, most_ranks);
  check.range("parallel.data_parallel", parallel.data_parallel.value_or(1), 1, most_ranks);
  check.range("parallel.tensor_parallel", parallel.tensor_parallel, 1, most_ranks);
  check.range("parallel.context_parallel", parallel.context_parallel, 1, most_ranks);
  check.range("parallel.expert_parallel", parallel.expert_parallel, 1, most_ranks);
  check.range("parallel.expert_tensor_parallel", parallel.expert_tensor_parallel.value_or(1), 1,
              most_ranks);
  check.range("parallel.pipeline_stages", parallel.pipeline_stages, 1, most_ranks);
  check.range("parallel.virtual_pipeline_stages", parallel.virtual_pipeline_stages, 1, most_ranks);
}

/// Divides the ranks by one size after another and reports the first that leaves a remainder.
void report_indivisible(const std::vector<Size>& sizes, std::int64_t world, Check& check) {
  std::int64_t left = world;
  for (const Size& size : sizes) {
    if (left % size.value == 0) {
      left /= size.value;
      continue;
    }
    std::int64_t product = 1;
    for (const Size& one : sizes) product = product_of({product, one.value});
    check.error(
        "world-size", size.path, indivisible(world_of(world), factors_of(sizes) + equals(product)),
        "set " + std::string(size.key) + " to " + divisors_near(left, size.value) +
            (product <= most_ranks ? ", or start " + multiples_near(product, world) + " ranks"
                                   : ""));
    return;
  }
}

void check_split_world(const Facts& facts, std::int64_t world, Check& check) {
  const std::vector<Size> sizes = dense_sizes(facts);
  std::int64_t split = 1;
  for (const Size& size : sizes) split = product_of({split, size.value});
  if (!facts.parallel().data_parallel) {
    if (world % split != 0) report_indivisible(sizes, world, check);
    return;
  }
  const std::int64_t data = *facts.parallel().data_parallel;
  const std::int64_t product = product_of({split, data});
  if (product == world) return;
  std::vector<std::string> legal;
  if (world % split == 0) {
    legal.push_back("set data_parallel to " + std::to_string(world / split) + " or leave it out");
  }
  for (const Size& size : sizes) {
    const std::int64_t rest = product / size.value;
    if (size.value == 1 || product == most_product || world % rest != 0) continue;
    legal.push_back("set " + std::string(size.key) + " to " + std::to_string(world / rest));
  }
  if (product <= most_ranks) legal.push_back("start " + counted(product, "rank"));
  check.error("world-size", "parallel.data_parallel",
              world_of(world) + " must equal " + factors_of(sizes) + " x " +
                  named("data_parallel", data) + equals(product),
              alternatives(legal));
}

void check_world(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const std::int64_t world = facts.site.world_size;
  if (parallel.device_num && *parallel.device_num != world) {
    check.error("device-num", "parallel.device_num",
                named("device_num", *parallel.device_num) + " must equal " + world_of(world),
                "set device_num to " + std::to_string(world) + " or leave it out, or start " +
                    counted(*parallel.device_num, "rank"));
  }
  if (parallel.parallel_mode == ParallelMode::stand_alone && world != 1) {
    check.error("stand-alone", "parallel.parallel_mode",
                "parallel_mode stand_alone needs one rank, but " + world_of(world) + " is larger",
                "set parallel_mode to data_parallel, or start one rank");
    return;
  }
  if (facts.splits) {
    check_split_world(facts, world, check);
  } else if (parallel.data_parallel && *parallel.data_parallel != world) {
    check.error("world-size", "parallel.data_parallel",
                named("data_parallel", *parallel.data_parallel) + " must equal " + world_of(world),
                "set data_parallel to " + std::to_string(world) + " or leave it out, or start " +
                    counted(*parallel.data_parallel, "rank"));
  }
}

/// The sizes for experts factorise the same ranks.
void check_expert_world(const Facts& facts, Check& check) {
  if (!facts.splits || !facts.mesh_is_clean(check)) return;
  const ParallelConfig& parallel = facts.parallel();
  const std::int64_t tensor = parallel.expert_tensor_parallel.value_or(parallel.tensor_parallel);
  const std::int64_t product =
      product_of({tensor, parallel.expert_parallel, parallel.pipeline_stages});
  const std::int64_t world = facts.site.world_size;
  if (world % product == 0) return;
  const std::int64_t stage = world / parallel.pipeline_stages;
  const bool by_tensor = stage % tensor != 0 && parallel.expert_tensor_parallel;
  const std::string help =
      by_tensor
          ? "set expert_tensor_parallel to " + divisors_near(stage, tensor)
          : "set expert_parallel to " + divisors_near(stage / tensor, parallel.expert_parallel);
  check.error(
      "expert-world-size",
      by_tensor ? "parallel.expert_tensor_parallel" : "parallel.expert_parallel",
      indivisible(world_of(world), named("expert_tensor_parallel", tensor) + " x " +
                                       named("expert_parallel", parallel.expert_parallel) + " x " +
                                       named("pipeline_stages", parallel.pipeline_stages) +
                                       equals(product)),
      help +
          (product <= most_ranks ? ", or start " + multiples_near(product, world) + " ranks" : ""));
}

std::vector<std::string> words_of_order(const std::string& order) {
  std::vector<std::string> words(1);
  for (const char letter : order) {
    if (letter == '-') {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
    }
  }
  return words;
}

/// False where the order cannot be read.
bool check_order_words(const std::string& order, Check& check) {
  const std::vector<std::string> known{"tp", "cp", "ep", "dp", "pp"};
  const char* help = "set rank_order to tp-cp-ep-dp-pp or tp-pp-ep-dp-cp, for example";
  std::vector<std::string> seen;
  for (const std::string& word : words_of_order(order)) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      check.error("rank-order", "parallel.rank_order",
                  "unknown axis \"" + word + "\" in " + order + "; available: tp, cp, ep, dp, pp",
                  help);
      return false;
    }
    if (std::find(seen.begin(), seen.end(), word) != seen.end()) {
      check.error("rank-order", "parallel.rank_order", word + " occurs twice in " + order, help);
      return false;
    }
    seen.push_back(word);
  }
  return true;
}

/// The order may omit an axis only if it has one rank for dense layers and for experts.
bool check_order_missing(const Facts& facts, Check& check) {
  std::vector<Axis> appended;
  parse_order(facts.parallel().rank_order, appended);
  const Mesh& mesh = facts.mesh;
  for (const Axis axis : appended) {
    const std::int64_t expert = axis == Axis::tp   ? mesh.etp
                                : axis == Axis::dp ? mesh.edp
                                                   : mesh.size(axis);
    const std::int64_t size = std::max(mesh.size(axis), expert);
    if (size == 1) continue;
    const std::string name(name_of(axis));
    check.error(
        "rank-order-missing", "parallel.rank_order",
        facts.parallel().rank_order + " must name " + name + ", which has " + counted(size, "rank"),
        "set rank_order to " + facts.parallel().rank_order + "-" + name + " or tp-cp-ep-dp-pp");
    return false;
  }
  return true;
}

/// Distance between neighbouring ranks of a pipeline group, by the sizes for experts.
std::int64_t expert_pipeline_stride(const Mesh& mesh) {
  std::int64_t stride = 1;
  for (const Axis axis : mesh.order) {
    if (axis == Axis::pp) break;
    stride *= axis == Axis::tp   ? mesh.etp
              : axis == Axis::dp ? mesh.edp
              : axis == Axis::ep ? mesh.ep
                                 : 1;
  }
  return stride;
}

void check_order(const Facts& facts, Check& check) {
  const std::string& order = facts.parallel().rank_order;
  if (!check.clean({"parallel.rank_order"}) || !check_order_words(order, check)) return;
  if (!facts.mesh_is_clean(check) || !check_order_missing(facts, check)) return;
  const Mesh& mesh = facts.mesh;
  if (mesh.pp == 1) return;
  const std::int64_t dense = mesh.stride(Axis::pp);
  const std::int64_t expert = expert_pipeline_stride(mesh);
  const bool ends_in_pp = words_of_order(order).back() == "pp";
  const std::string help = "set rank_order to tp-cp-ep-dp-pp";
  if (!ends_in_pp && mesh.edp != mesh.dp) {
    check.error("rank-order-pipeline", "parallel.rank_order",
                order + " must end in pp, because experts have " + std::to_string(mesh.edp) +
                    " data-parallel ranks and dense layers " + std::to_string(mesh.dp),
                help + ", or to another order that ends in pp");
  } else if (dense != expert) {
    check.error("rank-order-pipeline", "parallel.rank_order",
                order + " puts pipeline neighbours " + std::to_string(dense) +
                    " ranks apart for dense layers, but " + std::to_string(expert) + " for experts",
                help);
  }
}

}  // namespace

void check_mesh(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  check_ranges(parallel, check);
  if (facts.mesh_is_clean(check)) check_world(facts, check);
  check_expert_world(facts, check);
  check_order(facts, check);
  const std::int64_t world = facts.site.world_size;
  if (check.clean({"parallel.global_rank", "parallel.device_num"}) &&
      (parallel.global_rank < 0 || parallel.global_rank >= world)) {
    check.error("global-rank", "parallel.global_rank",
                named("global_rank", parallel.global_rank) + " must be from 0 to " +
                    std::to_string(world - 1) + " with " + counted(world, "rank"),
                "leave global_rank out: the launcher numbers the ranks");
  }
}

}  // namespace trainctl
