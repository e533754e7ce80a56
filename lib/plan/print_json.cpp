#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "plan/plan.h"

namespace trainctl {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t most_listed_ranks = 1024;
constexpr std::array<Axis, axis_count> all_axes{Axis::tp,  Axis::cp, Axis::dp, Axis::pp,
                                                Axis::etp, Axis::ep, Axis::edp};

Json mesh_json(const Mesh& mesh) {
  Json object = Json::object();
  for (Axis axis : all_axes) object[std::string(name_of(axis))] = mesh.size(axis);
  return object;
}

/// All groups of an axis, in the order of their lowest rank.
Json group_lists(const Mesh& mesh, Axis axis) {
  Json lists = Json::array();
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    if (mesh.coordinate(rank, axis) == 0) lists.push_back(mesh.group(rank, axis));
  }
  return lists;
}

Json groups_json(const Mesh& mesh, std::int64_t rank) {
  Json object = Json::object();
  for (Axis axis : all_axes) {
    Json group;
    group["size"] = mesh.size(axis);
    group["stride"] = mesh.stride(axis);
    group["count"] = mesh.world_size() / mesh.size(axis);
    if (rank >= 0) {
      group["ranks"] = Json::array({mesh.group(rank, axis)});
    } else if (mesh.world_size() <= most_listed_ranks) {
      group["ranks"] = group_lists(mesh, axis);
    }
    object[std::string(name_of(axis))] = std::move(group);
  }
  return object;
}

Json rank_json(const Mesh& mesh, std::int64_t rank) {
  Json object;
  object["rank"] = rank;
  for (Axis axis : all_axes) {
    object["coordinates"][std::string(name_of(axis))] = mesh.coordinate(rank, axis);
  }
  return object;
}

Json model_json(const ModelShape& model) {
  return Json{{"family", model.family == Family::gpt2 ? "gpt2" : "llama"},
              {"layers", model.layers},
              {"hidden", model.hidden},
              {"ffn", model.ffn},
              {"heads", model.heads},
              {"kv_heads", model.kv_heads},
              {"head_dim", model.head_dim},
              {"seq_length", model.seq_length},
              {"positions", model.positions},
              {"vocab", model.vocab},
              {"padded_vocab", model.padded_vocab},
              {"tied", model.tied}};
}

Json shape_json(const Shape& shape) {
  Json dims = Json::array();
  for (int dim = 0; dim < shape.rank(); ++dim) dims.push_back(shape[dim]);
  return dims;
}

Json axes_json(const bool (&flags)[axis_count]) {
  Json names = Json::array();
  for (Axis axis : all_axes) {
    if (flags[static_cast<std::size_t>(axis)]) names.push_back(std::string(name_of(axis)));
  }
  return names;
}

Json parameters_json(const Plan& plan) {
  static constexpr std::array<const char*, 3> inits{"normal", "zeros", "ones"};
  Json rows = Json::array();
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const ParamSpec& parameter = plan.parameters[i];
    Json row;
    row["name"] = parameter.name;
    row["global_shape"] = shape_json(parameter.global_shape);
    row["shape"] = shape_json(parameter.shape);
    row["role"] = parameter.role == DTypeRole::matrix ? "matrix" : "vector";
    row["init"] = inits[static_cast<std::size_t>(parameter.init)];
    row["init_deviation"] = parameter.init_deviation;
    row["decay"] = parameter.decay;
    row["unit"] = parameter.unit;
    row["split"] = axes_json(parameter.split);
    row["gradient_sum"] = axes_json(parameter.gradient_sum);
    row["offset"] = plan.flat.offset[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

Json buckets_json(const Plan& plan) {
  Json rows = Json::array();
  for (const Bucket& bucket : plan.flat.buckets) {
    Json names = Json::array();
    for (int index : bucket.parameters) {
      names.push_back(plan.parameters[static_cast<std::size_t>(index)].name);
    }
    rows.push_back(Json{{"offset", bucket.offset},
                        {"length", bucket.length},
                        {"ready_unit", bucket.ready_unit},
                        {"parameters", std::move(names)}});
  }
  return rows;
}

Json activations_json(const Plan& plan) {
  static constexpr std::array<const char*, 3> lifetimes{"batch", "kept", "transient"};
  Json rows = Json::array();
  for (const ActivationSpec& spec : plan.activations) {
    rows.push_back(Json{{"name", spec.name},
                        {"shape", shape_json(spec.shape)},
                        {"dtype", std::string(name_of(spec.dtype))},
                        {"lifetime", lifetimes[static_cast<std::size_t>(spec.lifetime)]}});
  }
  return rows;
}

Json stages_json(const Plan& plan) {
  return Json::array({Json{{"stage", 0},
                           {"ranks", plan.mesh.world_size() / plan.mesh.pp},
                           {"first_layer", 0},
                           {"layers", plan.model.layers},
                           {"embedding", true},
                           {"head", true},
                           {"units", plan.units()}}});
}

Json schedule_json(const Plan& plan) {
  Json actions = Json::array();
  for (const Action& action : plan.actions) actions.push_back(to_string(action));
  return Json::array({Json{{"stage", 0}, {"slots", plan.slots}, {"actions", std::move(actions)}}});
}

Json memory_json(const MemoryEstimate& memory) {
  return Json{{"parameters", memory.parameters},
              {"gradients", memory.gradients},
              {"optimizer", memory.optimizer},
              {"activations", memory.activations},
              {"communication", memory.communication},
              {"data", memory.data},
              {"runtime", memory.runtime},
              {"total", memory.total()}};
}

Json communication_json(const Plan& plan) {
  Json rows = Json::array();
  for (const CollectiveUse& use : plan.communication) {
    rows.push_back(Json{{"name", use.name},
                        {"axis", std::string(name_of(use.axis))},
                        {"count", use.count},
                        {"bytes", use.bytes}});
  }
  return rows;
}

Json rates_json(const Plan& plan) {
  Json rows = Json::array();
  for (const RatePoint& point : plan.rates) {
    rows.push_back(Json{{"step", point.step},
                        {"learning_rate", point.learning_rate},
                        {"weight_decay", point.weight_decay}});
  }
  return rows;
}

std::string hex(std::uint64_t value) {
  std::array<char, 20> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%016llx", static_cast<unsigned long long>(value));
  return buffer.data();
}

}  // namespace

std::string print_json(const Plan& plan, std::int64_t rank) {
  require(rank < plan.mesh.world_size(), ExitCode::usage,
          "rank " + std::to_string(rank) + " is not in a world of " +
              std::to_string(plan.mesh.world_size()) + " ranks");
  Json root;
  root["format_version"] = 1;
  root["hash"] = hex(plan.hash);
  root["world_size"] = plan.mesh.world_size();
  root["mesh"] = mesh_json(plan.mesh);
  if (rank >= 0) root["rank"] = rank_json(plan.mesh, rank);
  root["groups"] = groups_json(plan.mesh, rank);
  root["model"] = model_json(plan.model);
  root["compute"] = std::string(name_of(plan.compute));
  root["micro_batch_size"] = plan.micro_batch_size;
  root["microbatches"] = plan.microbatches;
  root["tokens_per_step"] = plan.tokens_per_step();
  root["threads_per_rank"] = plan.threads_per_rank;
  root["stages"] = stages_json(plan);
  root["schedule"] = schedule_json(plan);
  root["parameters"] = parameters_json(plan);
  root["buckets"] = buckets_json(plan);
  root["activations"] = activations_json(plan);
  root["memory"] = memory_json(plan.memory);
  root["flops"] = Json{{"matmul", plan.flops.matmul},
                       {"attention_causal", plan.flops.attention_causal},
                       {"attention_full", plan.flops.attention_full},
                       {"total", plan.flops.total()}};
  root["communication"] = communication_json(plan);
  root["steps"] = plan.steps;
  root["rates"] = rates_json(plan);
  return root.dump(2) + "\n";
}

}  // namespace trainctl
