// Which entry of optimizer.groups holds for a parameter, and what it gives it.
#pragma once

#include <string_view>

#include "config/schema/config.h"
#include "plan/tables/params.h"

namespace trainctl {

/// Whether the whole name fits the pattern: `*` stands for any characters or none, `?` for one.
bool matches(std::string_view pattern, std::string_view name);

/// The first entry that takes the parameter; -1: none does. The bias by which experts are chosen
/// has a rule of its own, so no entry takes it.
int group_of(const ParamSpec& parameter, const OptimizerGroups& groups);

/// Whether Muon updates a parameter of this kind where the optimizer is muon: the matrices of
/// attention and feed-forward layers.
bool is_muon_matrix(const ParamSpec& parameter);
/// Whether an entry may give it to Muon: also a router, the gate of shared experts and learned
/// positions, but no table of the vocabulary and no vector.
bool may_have_muon(const ParamSpec& parameter);

/// Sets group, update, factors and decay of a parameter whose `decay` is what holds without groups.
void assign_optimizer(const OptimizerConfig& optimizer, ParamSpec& parameter);

}  // namespace trainctl
