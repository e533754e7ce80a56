// The fields of the parallel section that say of what gradients are the gradient and how they are
// sent; see fields.h.
#pragma once

#include "config/schema/field.h"
#include "config/schema/parallel_config.h"

namespace trainctl {

template <class Visitor>
void gradient_fields(Visitor& visit, Is<ParallelConfig> auto& parallel) {
  visit(parallel.gradients_mean,
        field("gradients_mean",
              "true: gradients of the mean loss over the global batch; false: gradients are summed "
              "over the replicas but not divided by their number, so they are data_parallel times "
              "larger")
            .unset("true"));
  visit(parallel.gradient_fp32_sync,
        field("gradient_fp32_sync",
              "true: send gradients in fp32, the parameter's type; false: round them to "
              "precision.compute, which halves the bytes in 16-bit types. Has no effect in "
              "data_parallel mode"));
  visit(parallel.loss_repeated_mean,
        field("loss_repeated_mean",
              "false: gradients are not divided by the number of ranks that compute the same loss, "
              "so they are tensor_parallel times larger. Has no effect in data_parallel mode"));
  visit(parallel.force_fp32_communication,
        field("force_fp32_communication",
              "Send sums of 16-bit tensors in fp32, with twice the bytes"));
  visit(parallel.parameter_broadcast,
        field("parameter_broadcast",
              "Send the first replica's initial parameters to the others, once"));
}

}  // namespace trainctl
