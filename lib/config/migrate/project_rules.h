// What several keys of a project say together, and the defaults that differ from ours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/migrate/migration.h"

namespace trainctl {

struct Default {
  const char* path;
  const char* value;
};

template <class Table>
void put_defaults(Migration& migration, const Table& table) {
  for (const Default& row : table) migration.put_default(row.path, row.value);
}

/// The optimizer's values are sharded; gradients stay whole until the step.
void shard_optimizer(Migration& migration, const std::string& why);

void settle_megatron(Migration& migration);
/// Of its experts: after the sizes and the layout are there. Returns of each layer 1 if it has
/// experts, where no key of moe says it.
std::vector<std::int64_t> settle_megatron_experts(Migration& migration);

/// An argument that is a number, or a list with a number for each layer.
struct MegatronMarks {
  std::int64_t every = 0;            // 0: a list, or nothing
  std::vector<std::int64_t> list{};  // of 0 and 1
};
/// Refuses other values.
MegatronMarks read_megatron_marks(Migration& migration, const char* argument);
/// Kinds of layers, after the window is there. `routed`: of each layer 1 if it has experts, where
/// no key of moe says it.
void settle_megatron_layers(Migration& migration, const std::vector<std::int64_t>& routed);

/// Of its optimizer and of single parameters: after the model is there.
void settle_megatron_optimizer(Migration& migration);

/// All rules of migration.project(), after its keys were carried over.
void apply_project_rules(Migration& migration);

}  // namespace trainctl
