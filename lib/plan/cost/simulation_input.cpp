#include "base/at.h"
#include "plan/cost/estimate.h"

namespace trainctl {

namespace {

SimulationInput without_rows(const Plan& plan) {
  SimulationInput simulation;
  const Mesh& mesh = plan.mesh;
  const bool experts = plan.model.experts > 1 && mesh.ep * mesh.etp > 1;
  const int inner = mesh.tp * mesh.cp > 1 || experts ? 2 : 1;
  const int replicas = mesh.dp > 1 ? 2 : 1;
  for (int stage = 0; stage < plan.map.stages; ++stage) {
    for (int rank = 0; rank < inner * replicas; ++rank) {
      simulation.ranks.push_back(
          RankRows{schedule_input(plan, stage), rank / inner, rank % inner, {}});
    }
  }
  return simulation;
}

}  // namespace

SimulationInput simulation_input(const Plan& plan) {
  SimulationInput simulation = without_rows(plan);
  for (RankRows& rank : simulation.ranks) rank.rows = at(plan.stages, rank.input.stage).actions;
  for (const StagePlan& rows : plan.stages) {
    simulation.buckets.push_back(rows.sums);
    simulation.gathers.push_back(rows.reads);
  }
  return simulation;
}

SimulationInput forward_simulation(const Plan& plan) {
  SimulationInput simulation = without_rows(plan);
  for (RankRows& rank : simulation.ranks) {
    rank.input = forward_input(plan, rank.input.stage);
    rank.rows = at(plan.stages, rank.input.stage).forward_actions;
  }
  for (const StagePlan& rows : plan.stages) simulation.gathers.push_back(freed_only(rows.reads));
  return simulation;
}

double layer_cost(const Action& action, std::int64_t layers) {
  if (!is_pass(action.kind)) return 0;
  // A pass in legs has half of its work before its rows are sent, and half after the experts.
  const double part = action.leg == ExchangePhase::whole  ? 1
                      : action.leg == ExchangePhase::home ? 0
                                                          : 0.5;
  return part * static_cast<double>(count_blocks({action.begin, action.end}, layers));
}

}  // namespace trainctl
