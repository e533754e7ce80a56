// The ranks over the axes of the mesh, and the order in which they are numbered.
#include <algorithm>
#include <limits>
#include <vector>

#include "plan/rules/check.h"

namespace trainctl {

namespace {

constexpr std::int64_t most_ranks = std::int64_t{1} << 24;
constexpr std::int64_t most_product = std::numeric_limits<std::int64_t>::max();

struct Size {
  const char* key;
  const char* path;
  const char* word;
  std::int64_t value;
};

std::vector<Size> dense_sizes(const Facts& facts) {
  const ParallelConfig& parallel = facts.parallel();
  return {{"tensor_parallel", "parallel.tensor_parallel", "tensor", parallel.tensor_parallel},
          {"pipeline_stages", "parallel.pipeline_stages", "pipeline", parallel.pipeline_stages},
          {"context_parallel", "parallel.context_parallel", "context", parallel.context_parallel}};
}

/// "= 12"; a product beyond any number of ranks is not written out.
std::string equals(std::int64_t product) {
  return product <= most_ranks ? " = " + std::to_string(product)
                               : ", more than " + std::to_string(most_ranks);
}

std::string factors_of(const std::vector<Size>& sizes) {
  std::string text;
  for (const Size& size : sizes) {
    text += (text.empty() ? "" : " x ") + (size.word + (" " + std::to_string(size.value)));
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

/// The ranks are divided by one size after another; the first that does not divide is at fault.
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
        "world-size", size.path,
        counted(world, "rank") + " / (" + factors_of(sizes) + equals(product) + ") is not whole",
        std::string(size.key) + " could be " + divisors_near(left, size.value) +
            (product <= most_ranks ? ", or the number of ranks " + multiples_near(product, world)
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
    legal.push_back("data_parallel could be " + std::to_string(world / split) + " or left out");
  }
  for (const Size& size : sizes) {
    const std::int64_t rest = product / size.value;
    if (size.value == 1 || product == most_product || world % rest != 0) continue;
    legal.push_back(std::string(size.key) + " could be " + std::to_string(world / rest));
  }
  if (product <= most_ranks) legal.push_back(counted(product, "rank") + " could be started");
  check.error("world-size", "parallel.data_parallel",
              counted(world, "rank") + " != " + factors_of(sizes) + " x data " +
                  std::to_string(data) + equals(product),
              alternatives(legal));
}

void check_world(const Facts& facts, Check& check) {
  const ParallelConfig& parallel = facts.parallel();
  const std::int64_t world = facts.site.world_size;
  const std::string ranks = counted(world, "rank");
  if (parallel.device_num && *parallel.device_num != world) {
    check.error("device-num", "parallel.device_num",
                ranks + " != device_num " + std::to_string(*parallel.device_num),
                "device_num could be " + std::to_string(world) + " or left out, or " +
                    counted(*parallel.device_num, "rank") + " be started");
  }
  if (parallel.parallel_mode == ParallelMode::stand_alone && world != 1) {
    check.error("stand-alone", "parallel.parallel_mode",
                ranks + " != 1, the only size of parallel_mode stand_alone",
                "parallel_mode could be data_parallel, or one rank be started");
    return;
  }
  if (facts.splits) {
    check_split_world(facts, world, check);
  } else if (parallel.data_parallel && *parallel.data_parallel != world) {
    check.error("world-size", "parallel.data_parallel",
                ranks + " != data " + std::to_string(*parallel.data_parallel),
                "data_parallel could be " + std::to_string(world) + " or left out, or " +
                    counted(*parallel.data_parallel, "rank") + " be started");
  }
}

/// The experts' factorisation of the same ranks.
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
          ? "expert_tensor_parallel could be " + divisors_near(stage, tensor)
          : "expert_parallel could be " + divisors_near(stage / tensor, parallel.expert_parallel);
  check.error(
      "expert-world-size",
      by_tensor ? "parallel.expert_tensor_parallel" : "parallel.expert_parallel",
      counted(world, "rank") + " / (expert tensor " + std::to_string(tensor) + " x expert " +
          std::to_string(parallel.expert_parallel) + " x pipeline " +
          std::to_string(parallel.pipeline_stages) + equals(product) + ") is not whole",
      help + (product <= most_ranks ? ", or the number of ranks " + multiples_near(product, world)
                                    : ""));
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
  const char* help = "rank_order could be tp-cp-ep-dp-pp or tp-pp-ep-dp-cp";
  std::vector<std::string> seen;
  for (const std::string& word : words_of_order(order)) {
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      check.error("rank-order", "parallel.rank_order",
                  "\"" + word + "\" in " + order + " is none of tp, cp, ep, dp and pp", help);
      return false;
    }
    if (std::find(seen.begin(), seen.end(), word) != seen.end()) {
      check.error("rank-order", "parallel.rank_order", word + " stands twice in " + order, help);
      return false;
    }
    seen.push_back(word);
  }
  return true;
}

/// Axes that may be left out have one rank in both factorisations.
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
        name + " is missing in " + facts.parallel().rank_order + ", but has " +
            counted(size, "rank"),
        "rank_order could be " + facts.parallel().rank_order + "-" + name + " or tp-cp-ep-dp-pp");
    return false;
  }
  return true;
}

/// Distance between the ranks of a pipeline group in the experts' factorisation.
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
  const std::string help = "rank_order could be tp-cp-ep-dp-pp";
  if (!ends_in_pp && mesh.edp != mesh.dp) {
    check.error("rank-order-pipeline", "parallel.rank_order",
                order + " does not end in pp, so expert data " + std::to_string(mesh.edp) +
                    " must be data " + std::to_string(mesh.dp),
                help + ", or another order that ends in pp");
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
                "global_rank " + std::to_string(parallel.global_rank) + " is not below " +
                    counted(world, "rank"),
                "global_rank could be 0 to " + std::to_string(world - 1) +
                    "; the launcher numbers the ranks, so it may be left out");
  }
}

}  // namespace trainctl
