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
  const NormForward args{.kind = NormKind::rms_norm,
                         .x = device.put(host.x),
                         .residual = device.put(host.residual),
                         .sum = device.put(host.sum),
                         .weight = device.put(host.weight),
                         .y = device.put(host.y),
                         .rstd = device.put(host.rstd)};
  norm_forward(device.context(), args);
  norm_forward(plain_context(), {.kind = NormKind::rms_norm,
                                 .x = host.x.tensor(),
                                 .residual = host.residual.tensor(),
                                 .sum = host.sum.tensor(),
                                 .weight = host.weight.tensor(),
                                 .y = host.y.tensor(),
                                 .rstd = host.rstd.tensor()});
  CHECK(difference(device.get(args.y), host.y) <= tolerance_of(type));
  CHECK(difference(device.get(args.rstd), host.rstd) <= 1e-5);
  if (with_residual) CHECK(device.get(args.sum).bytes() == host.sum.bytes());
}

struct Backward {
  HostTensor dy, x, weight, rstd, d_residual, dx, dweight;
};

Backward backward_operands(const Shape& shape, DType type, bool with_residual) {
  const Forward forward = forward_operands(shape, type, false);
  norm_forward(plain_context(), {.kind = NormKind::rms_norm,
                                 .x = forward.x.tensor(),
                                 .residual = {},
                                 .sum = {},
                                 .weight = forward.weight.tensor(),
                                 .y = forward.y.tensor(),
                                 .rstd = forward.rstd.tensor()});
  return Backward{HostTensor::random(shape, type, 5),
                  forward.x,
                  forward.weight,
                  forward.rstd,
                  with_residual ? HostTensor::random(shape, type, 6) : HostTensor(),
                  HostTensor(shape, type),
                  HostTensor::random({shape[1]}, DType::f32, 7)};
}

NormBackward put(DeviceCopy& device, const Backward& host) {
  return {.kind = NormKind::rms_norm,
          .dy = device.put(host.dy),
          .x = device.put(host.x),
          .weight = device.put(host.weight),
          .rstd = device.put(host.rstd),
          .d_residual = device.put(host.d_residual),
          .dx = device.put(host.dx),
          .dweight = device.put(host.dweight)};
}

void check_backward(const Shape& shape, DType type, bool with_residual) {
  CAPTURE(shape.to_string(), name_of(type), with_residual);
  const Backward host = backward_operands(shape, type, with_residual);
  DeviceCopy device;
  const NormBackward args = put(device, host);
  norm_backward(device.context(), args);
  // Again, with dx in the place of dy: the same dx, and the weight gradient added once more.
  NormBackward in_place = put(device, host);
  in_place.dx = in_place.dy;
  norm_backward(device.context(), in_place);
  norm_backward(plain_context(), {.kind = NormKind::rms_norm,
                                  .dy = host.dy.tensor(),
                                  .x = host.x.tensor(),
                                  .weight = host.weight.tensor(),
                                  .rstd = host.rstd.tensor(),
                                  .d_residual = host.d_residual.tensor(),
                                  .dx = host.dx.tensor(),
                                  .dweight = host.dweight.tensor()});
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
