// The kernels that op tests hold against the plain ones: the CPU's or, where TRAINCTL_TEST_DEVICE
// is "cuda", those of the CUDA module. The operands of op tests are host memory: for a device they
// are copied there before each operation and back after it.
#pragma once

#include "ops/kernels.h"

namespace op_test {

const trainctl::Kernels& tested_kernels();
/// Whether they are those of a device.
bool tests_device();

}  // namespace op_test
