// What several keys of a project say together, and the defaults that differ from ours.
#pragma once

#include <string>

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
/// Of its experts: after the sizes and the layout are there.
void settle_megatron_experts(Migration& migration);

/// All rules of migration.project(), after its keys were carried over.
void apply_project_rules(Migration& migration);

}  // namespace trainctl
