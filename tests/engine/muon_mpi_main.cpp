// Muon's steps from equal gradients over MPI: each process compares what it owns with what a single
// rank makes.
#include <cstdio>
#include <string>
#include <vector>

#include "equal_gradients.h"

using namespace trainctl;

int main(int count, char** words) {
  const std::vector<std::string> model{"optimizer.type=muon", "moe.num_experts=4",
                                       "model.add_bias_linear=false"};
  const std::vector<std::string> layout(words + 1, words + count);
  const Tensors alone = after_equal_steps({.options = model});
  run_mpi_world({.deadline_seconds = 30, .report_hangs = true}, [&](World& job) {
    const Tensors found = owned_after_equal_steps({.options = with(model, layout)}, job);
    std::printf("rank %d of %d: %zu of %zu tensors differ\n", job.rank(), job.size(),
                different_bits(found, alone).size(), found.size());
  });
}
