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
              "true: gradients are those of the mean loss of the global batch; false: they are "
              "summed over the replicas and not divided by their number, so that many times larger")
            .unset("true"));
  visit(parallel.gradient_fp32_sync,
        field("gradient_fp32_sync",
              "true: gradients are sent in the parameter's type, fp32; false: rounded to "
              "precision.compute, half the bytes. Not in data_parallel mode"));
  visit(parallel.loss_repeated_mean,
        field("loss_repeated_mean",
              "false: gradients are not divided by the number of ranks that compute the same "
              "loss, so tensor_parallel times larger. Not in data_parallel mode"));
  visit(parallel.force_fp32_communication,
        field("force_fp32_communication",
              "Sums of 16-bit tensors over ranks are sent in fp32: twice the bytes"));
  visit(parallel.parameter_broadcast,
        field("parameter_broadcast",
              "The first replica's initial parameters are sent to the others, once"));
}

}  // namespace trainctl
