// The updates that need whole matrices (StagePlan::matrices): each rank makes the direction of what
// it owns, workers make matrices of directions orthogonal, owners take the step. The order of every
// sum depends on the shape of a matrix only: the layout changes no bit of it.
#pragma once

#include <memory>
#include <vector>

#include "comm/nccl/device_world.h"
#include "config/schema/config.h"
#include "device/slab.h"
#include "engine/parameters/param_store.h"
#include "ops/optimizer.h"
#include "plan/ownership/matrix_exchange.h"

namespace trainctl {

class MatrixUpdate {
 public:
  /// Collective: forms a group of the stage's ranks, used on the compute stream. `store` has the
  /// parameters of the rank. Without such parameters nothing is allocated.
  MatrixUpdate(const MuonConfig& muon, const Plan& plan, const ParamStore& store,
               const StepState* state, const DeviceWorld& world, Stream& stream);

  /// Reads what updates read. Collective.
  void step(const OpContext& context) const;
  std::int64_t bytes() const { return memory_.bytes().numel(); }

 private:
  struct Matrix {
    Tensor x;      // the stack, or where a part of it is copied to
    Tensor apart;  // the stack from that part on; empty: x is the stack
    Calls<SquareSum> squares;
  };
  struct Round {
    MatrixRound plan;
    Calls<Update> directions, steps;
    std::vector<Matrix> matrices;  // of this rank's work
    std::int64_t columns = 0;      // of its stack
  };
  struct Places {
    const Plan& plan;
    const ParamStore& store;
    const StepState* state;
    std::int64_t rank;
    Stream& stream;
  };

  void add_updates(Round& round, const Places& places) const;
  void add_matrices(Round& round, const MatrixWork& work, Stream& stream) const;
  /// Values that are sent to workers, and results.
  Tensor wire() const;
  void fill_stack(const Round& round, const OpContext& context) const;
  void send_results(const Round& round, const OpContext& context) const;
  void make_orthogonal(const Matrix& matrix, const Round& round, const OpContext& context) const;
  void iterate(const Tensor& x, const OpContext& context) const;

  MuonConfig muon_;
  std::vector<MuonTriple> triples_;
  Slab memory_;
  std::unique_ptr<Group> ranks_;  // null: one rank
  std::vector<Round> rounds_;
};

}  // namespace trainctl
