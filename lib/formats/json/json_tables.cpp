#include <array>

#include "config/schema/words.h"
#include "formats/json/json_parts.h"
#include "formats/print/group_rows.h"
#include "formats/print/text.h"

namespace trainctl {

namespace {

using enum JsonText::Form;

std::vector<std::int64_t> dims_of(const Shape& shape) {
  std::vector<std::int64_t> dims;
  for (int dim = 0; dim < shape.rank(); ++dim) dims.push_back(shape[dim]);
  return dims;
}

/// Per axis of the factorisation that the parameter lies in: the dim that is cut, or "whole".
void write_layout(JsonText& json, const ParamSpec& row) {
  json.key("layout").open_object(one_line);
  for (const auto& [name, axis] : public_axes()) {
    const bool of_experts = axis == Axis::etp || axis == Axis::ep || axis == Axis::edp;
    if (axis == Axis::pp || of_experts != row.expert) continue;
    const int dim = row.split_dim[static_cast<std::size_t>(axis)];
    if (dim < 0) {
      json.member(name, "whole");
    } else {
      json.member(name, dim);
    }
  }
  json.close();
}

void write_shard(JsonText& json, const OptimizerShard& shard) {
  static constexpr std::array<const char*, 4> kinds{"whole", "rows", "dealt", "bucket"};
  json.key("optimizer_shard").open_object(one_line);
  json.member("kind", kinds[static_cast<std::size_t>(shard.kind)]);
  json.member("ranks", shard.ranks);
  json.member("mirrors", shard.mirrors);
  json.member("rows", shard.rows);
  json.member("owner", shard.owner);
  json.member("elements", shard.elements);
  json.member("why", shard.why);
  json.close();
}

struct ParameterPlace {
  int stage = 0;
  std::size_t index = 0;
  int bucket = -1;
};

void write_parameter(JsonText& json, const Plan& plan, const ParameterPlace& place) {
  static constexpr std::array<const char*, 3> inits{"normal", "zeros", "ones"};
  const StagePlan& held = plan.stages[static_cast<std::size_t>(place.stage)];
  const ParamSpec& row = held.parameters[place.index];
  json.open_object(one_line);
  json.member("stage", place.stage);
  json.member("name", row.name);
  json.member("global_shape", dims_of(row.global_shape));
  write_layout(json, row);
  json.member("shape", dims_of(row.shape));
  json.member("owner_groups", owner_groups(plan, place.stage, row));
  json.member("bucket", place.bucket);
  write_shard(json, held.shards[place.index]);
  json.member("role", row.role == DTypeRole::matrix ? "matrix" : "vector");
  json.member("master", name_of(row.master));
  json.member("init", inits[static_cast<std::size_t>(row.init)]);
  json.member("init_deviation", row.init_deviation);
  json.member("decay", row.decay);
  json.member("unit", row.unit);
  json.member("offset", held.flat.offset[place.index]);
  json.member("expert", row.expert);
  json.member("second_home", row.second_home);
  json.close();
}

}  // namespace

void write_parameters(JsonText& json, const PrintInput& input) {
  json.key("parameters").open_array();
  for (int stage = 0; stage < input.plan.map.stages; ++stage) {
    const StagePlan& held = input.plan.stages[static_cast<std::size_t>(stage)];
    const std::vector<int> buckets = bucket_of_each(held);
    for (std::size_t i = 0; i < held.parameters.size(); ++i) {
      write_parameter(json, input.plan, {stage, i, buckets[i]});
    }
  }
  json.close();
}

void write_optimizer_groups(JsonText& json, const PrintInput& input) {
  if (input.config == nullptr) return;
  const std::vector<GroupRow> rows = group_rows(input.plan, input.config->optimizer);
  if (rows.empty()) return;
  json.key("optimizer_groups").open_array();
  for (const GroupRow& row : rows) {
    json.open_object();
    json.key("entry").json(row.entry < 0 ? "null" : std::to_string(row.entry));
    json.member("type", word_of(row.type));
    json.member("lr_mult", row.rate_factor);
    write_optional(json, "wd_mult", row.decay_factor);
    json.key("parameters").open_array();
    for (const std::string& name : row.parameters) json.value(name);
    json.close();
    json.close();
  }
  json.close();
}

void write_matrices(JsonText& json, const Plan& plan) {
  const std::vector<MatrixRow> rows = matrix_rows(plan);
  if (rows.empty()) return;
  json.key("matrices").open_array();
  for (const MatrixRow& row : rows) {
    const MatrixWork& work = *row.work;
    const std::int64_t expert = work.parts.front().expert;
    json.open_object(one_line);
    json.member("stage", row.stage);
    json.key("parameters").open_array();
    for (const std::string& name : row.parameters) json.value(name);
    json.close();
    json.key("expert").json(expert < 0 ? "null" : std::to_string(expert));
    json.member("count", work.matrices);
    json.member("rows", work.matrix_rows());
    json.member("columns", work.matrix_columns());
    json.member("worker", row.worker);
    json.member("round", work.round);
    json.member("flops", work.cost);
    json.close();
  }
  json.close();
}

void write_buckets(JsonText& json, const Plan& plan) {
  json.key("buckets").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    const StagePlan& held = plan.stages[static_cast<std::size_t>(stage)];
    int index = 0;
    for (const Bucket& bucket : held.flat.buckets) {
      json.open_object(one_line);
      json.member("stage", stage);
      json.member("index", index++);
      json.member("offset", bucket.offset);
      json.member("length", bucket.length);
      json.member("ready_unit", bucket.ready_unit);
      json.member("expert", bucket.expert);
      json.key("parameters").open_array();
      for (const int parameter : bucket.parameters) {
        json.value(held.parameters[static_cast<std::size_t>(parameter)].name);
      }
      json.close();
      json.close();
    }
  }
  json.close();
}

void write_activations(JsonText& json, const Plan& plan) {
  static constexpr std::array storages{"batch",    "input",   "forward",   "statistic",
                                       "gradient", "message", "repeated",  "staged",
                                       "host",     "counted", "exchanged", "shared"};
  static constexpr std::array moments{"fetch",  "input",  "forward",  "offload", "gradient",
                                      "reload", "repeat", "backward", "weight"};
  static_assert(storages.size() == static_cast<std::size_t>(Storage::shared) + 1);
  static_assert(moments.size() == static_cast<std::size_t>(Moment::weight) + 1);
  static constexpr std::array<const char*, 3> kinds{"all", "usual", "partial"};
  json.key("activations").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    for (const ActivationSpec& row : plan.stages[static_cast<std::size_t>(stage)].activations) {
      json.open_object(one_line);
      json.member("stage", stage);
      json.member("name", row.name);
      json.member("shape", dims_of(row.shape));
      json.member("dtype", name_of(row.dtype));
      json.member("storage", storages[static_cast<std::size_t>(row.storage)]);
      json.member("from", moments[static_cast<std::size_t>(row.from)]);
      json.member("until", moments[static_cast<std::size_t>(row.until)]);
      json.member("kind", kinds[static_cast<std::size_t>(row.kind)]);
      json.close();
    }
  }
  json.close();
}

void write_communication(JsonText& json, const Plan& plan) {
  json.key("communication").open_array();
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    for (const CollectiveUse& use : plan.stages[static_cast<std::size_t>(stage)].communication) {
      json.open_object(one_line);
      json.member("stage", stage);
      json.member("operation", name_of(use.operation));
      json.member("what", name_of(use.cargo));
      json.member("purpose", name_of(use.purpose));
      json.member("group", name_of(use.group));
      json.member("ranks", use.ranks);
      json.member("count", use.count);
      json.member("bytes", use.bytes);
      json.close();
    }
  }
  json.close();
}

}  // namespace trainctl
