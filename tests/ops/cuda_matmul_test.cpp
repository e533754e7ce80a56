#include "../device/cuda_available.h"
#include "catch.h"
#include "cuda_device_copy.h"

using namespace trainctl;

namespace {

struct Types {
  DType operand, result;
  double tolerance;  // of the largest element: the order of the sum, then the result's rounding
};
constexpr Types type_rows[] = {{DType::f32, DType::f32, 1e-5},
                               {DType::bf16, DType::f32, 1e-5},
                               {DType::bf16, DType::bf16, 1.0 / 128}};

enum class Mode { overwrite, accumulate, bias };

struct Case {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  Mode mode;
  Types types;
  std::int64_t offset;  // of every operand on the device, in bytes
};

double run_case(const Case& one) {
  const Shape a_shape = one.transpose_a ? Shape{one.k, one.m} : Shape{one.m, one.k};
  const Shape b_shape = one.transpose_b ? Shape{one.n, one.k} : Shape{one.k, one.n};
  const HostTensor a = HostTensor::random(a_shape, one.types.operand, 1);
  const HostTensor b = HostTensor::random(b_shape, one.types.operand, 2);
  const HostTensor c = HostTensor::random({one.m, one.n}, one.types.result, 3, 5);
  HostTensor bias;
  if (one.mode == Mode::bias) bias = HostTensor::random({one.n}, DType::f32, 4);

  Matmul args;
  args.transpose_a = one.transpose_a;
  args.transpose_b = one.transpose_b;
  args.accumulate = one.mode == Mode::accumulate;
  DeviceCopy device;
  args.a = device.put(a, one.offset);
  args.b = device.put(b, one.offset);
  args.c = device.put(c, one.offset);
  args.bias = device.put(bias, one.offset);
  matmul(device.context(), args);
  const HostTensor got = device.get(args.c);

  args.a = a.tensor();
  args.b = b.tensor();
  args.c = c.tensor();
  args.bias = bias.tensor();
  matmul(plain_context(), args);
  return difference(got, c);
}

void check_case(const Case& one) {
  CAPTURE(one.m, one.n, one.k, one.transpose_a, one.transpose_b, static_cast<int>(one.mode),
          one.offset);
  CAPTURE(name_of(one.types.operand), name_of(one.types.result));
  CHECK(run_case(one) <= one.types.tolerance);
}

}  // namespace

TEST_CASE("CUDA matrix products are the plain ones") {
  if (!cuda_available()) return;
  const Shape extents[] = {{1, 8, 16}, {7, 5, 3}, {64, 128, 32}, {129, 72, 200}};
  for (const Shape& extent : extents) {
    for (const Types& types : type_rows) {
      for (const Mode mode : {Mode::overwrite, Mode::accumulate, Mode::bias}) {
        for (const int transposes : {0, 1, 2, 3}) {
          check_case({extent[0], extent[1], extent[2], (transposes & 1) != 0, (transposes & 2) != 0,
                      mode, types, 0});
        }
      }
    }
  }
}

TEST_CASE("CUDA matrix products take operands that are aligned to their elements only") {
  if (!cuda_available()) return;
  for (const Types& types : type_rows) {
    check_case({64, 128, 32, false, true, Mode::bias, types, 4});
    check_case({64, 128, 32, true, false, Mode::accumulate, types, 16});
  }
}

TEST_CASE("CUDA matrix products over no elements are zero, or add nothing") {
  if (!cuda_available()) return;
  DeviceCopy device;
  const HostTensor c = HostTensor::random({3, 4}, DType::f32, 3);
  Matmul args;
  args.c = device.put(c);
  args.a = Tensor{args.c.data, Shape{3, 0}, DType::f32, DeviceKind::cuda};
  args.b = Tensor{args.c.data, Shape{0, 4}, DType::f32, DeviceKind::cuda};
  args.accumulate = true;
  device.context().kernels->matmul(device.context(), args);
  CHECK(device.get(args.c).bytes() == c.bytes());
  args.accumulate = false;
  device.context().kernels->matmul(device.context(), args);
  CHECK(device.get(args.c).bytes() == HostTensor({3, 4}, DType::f32).bytes());
}

TEST_CASE("CUDA matrix products whose extents vary are the others") {
  if (!cuda_available()) return;
  DeviceCopy device;
  for (std::int64_t rows = 1; rows < 20; rows += 3) {
    Matmul args;
    args.a = device.put(HostTensor::random({rows, 40}, DType::bf16, 1));
    args.b = device.put(HostTensor::random({40, 24}, DType::bf16, 2));
    args.c = device.put(HostTensor({rows, 24}, DType::f32));
    args.bias = device.put(HostTensor::random({24}, DType::f32, 3));
    matmul(device.context(), args);
    const HostTensor kept = device.get(args.c);
    args.varies = true;
    args.c = device.put(HostTensor({rows, 24}, DType::f32));
    matmul(device.context(), args);
    CHECK(device.get(args.c).bytes() == kept.bytes());
  }
}

TEST_CASE("the same CUDA matrix product twice has the same bits") {
  if (!cuda_available()) return;
  DeviceCopy device;
  Matmul args;
  args.a = device.put(HostTensor::random({256, 4096}, DType::bf16, 1));
  args.b = device.put(HostTensor::random({4096, 64}, DType::bf16, 2));
  args.c = device.put(HostTensor({256, 64}, DType::f32));
  matmul(device.context(), args);
  const HostTensor first = device.get(args.c);
  matmul(device.context(), args);
  CHECK(device.get(args.c).bytes() == first.bytes());
}
