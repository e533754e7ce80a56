#include "../device/cuda_available.h"
#include "catch.h"
#include "cuda_device_copy.h"

using namespace trainctl;

namespace {

// The last is longer than a block's shared memory; the odd ones cannot be read 16 bytes at a time.
const Shape extents[] = {{1, 8}, {5, 33}, {7, 1024}, {600, 768}, {3, 16384}, {9, 13001}};

double tolerance_of(DType type) { return type == DType::f32 ? 2e-5 : 1.0 / 128; }

struct Forward {
  HostTensor x, residual, sum, weight, y, rstd;
};

Forward forward_operands(const Shape& shape, DType type, bool with_residual) {
  Forward operands{HostTensor::random(shape, type, 1),
                   {},
                   {},
                   HostTensor::random({shape[1]}, DType::f32, 3),
                   HostTensor(shape, type),
                   HostTensor({shape[0]}, DType::f32)};
  if (with_residual) {
    operands.residual = HostTensor::random(shape, type, 2);
    operands.sum = HostTensor(shape, type);
  }
  return operands;
}

void check_forward(const Shape& shape, DType type, bool with_residual) {
  CAPTURE(shape.to_string(), name_of(type), with_residual);
  const Forward host = forward_operands(shape, type, with_residual);
  DeviceCopy device;
  const RmsNormForward args{device.put(host.x),
                            device.put(host.residual),
                            device.put(host.sum),
                            device.put(host.weight),
                            device.put(host.y),
                            device.put(host.rstd),
                            1e-5F};
  rmsnorm_forward(device.context(), args);
  rmsnorm_forward(plain_context(),
                  {host.x.tensor(), host.residual.tensor(), host.sum.tensor(), host.weight.tensor(),
                   host.y.tensor(), host.rstd.tensor(), 1e-5F});
  CHECK(difference(device.get(args.y), host.y) <= tolerance_of(type));
  CHECK(difference(device.get(args.rstd), host.rstd) <= 1e-5);
  if (with_residual) CHECK(device.get(args.sum).bytes() == host.sum.bytes());
}

struct Backward {
  HostTensor dy, x, weight, rstd, d_residual, dx, dweight;
};

Backward backward_operands(const Shape& shape, DType type, bool with_residual) {
  const Forward forward = forward_operands(shape, type, false);
  rmsnorm_forward(plain_context(), {forward.x.tensor(),
                                    {},
                                    {},
                                    forward.weight.tensor(),
                                    forward.y.tensor(),
                                    forward.rstd.tensor(),
                                    1e-5F});
  return Backward{HostTensor::random(shape, type, 5),
                  forward.x,
                  forward.weight,
                  forward.rstd,
                  with_residual ? HostTensor::random(shape, type, 6) : HostTensor(),
                  HostTensor(shape, type),
                  HostTensor::random({shape[1]}, DType::f32, 7)};
}

RmsNormBackward put(DeviceCopy& device, const Backward& host) {
  return {device.put(host.dy),     device.put(host.x),          device.put(host.weight),
          device.put(host.rstd),   device.put(host.d_residual), device.put(host.dx),
          device.put(host.dweight)};
}

void check_backward(const Shape& shape, DType type, bool with_residual) {
  CAPTURE(shape.to_string(), name_of(type), with_residual);
  const Backward host = backward_operands(shape, type, with_residual);
  DeviceCopy device;
  const RmsNormBackward args = put(device, host);
  rmsnorm_backward(device.context(), args);
  // Again, with dx in the place of dy: the same dx, and the weight gradient added once more.
  RmsNormBackward in_place = put(device, host);
  in_place.dx = in_place.dy;
  rmsnorm_backward(device.context(), in_place);
  rmsnorm_backward(plain_context(),
                   {host.dy.tensor(), host.x.tensor(), host.weight.tensor(), host.rstd.tensor(),
                    host.d_residual.tensor(), host.dx.tensor(), host.dweight.tensor()});
  const HostTensor dx = device.get(args.dx);
  CHECK(difference(dx, host.dx) <= tolerance_of(type));
  CHECK(difference(device.get(args.dweight), host.dweight) <= 2e-5);
  CHECK(device.get(in_place.dx).bytes() == dx.bytes());
  CHECK(device.get(in_place.dweight).bytes() == device.get(args.dweight).bytes());
}

}  // namespace

TEST_CASE("CUDA RMSNorm forward is the plain one") {
  if (!cuda_available()) return;
  for (const Shape& shape : extents) {
    for (const DType type : {DType::f32, DType::bf16}) {
      check_forward(shape, type, false);
      check_forward(shape, type, true);
    }
  }
}

TEST_CASE("CUDA RMSNorm backward is the plain one, and the same on every run") {
  if (!cuda_available()) return;
  for (const Shape& shape : extents) {
    for (const DType type : {DType::f32, DType::bf16}) {
      check_backward(shape, type, false);
      check_backward(shape, type, true);
    }
  }
}
