#include "../device/cuda_available.h"
#include "catch.h"
#include "cuda_device_copy.h"

using namespace trainctl;

namespace {

struct Operands {
  HostTensor parameter, gradient, m, v, compute;
};

Operands operands_of(std::int64_t count, bool with_compute) {
  Operands operands{HostTensor::random({count}, DType::f32, 1),
                    HostTensor::random({count}, DType::f32, 2),
                    HostTensor::random({count}, DType::f32, 3, 0.1F),
                    HostTensor::random({count}, DType::f32, 4, 0.1F),
                    {}};
  float* v = operands.v.tensor().as<float>();
  for (std::int64_t i = 0; i < count; ++i) v[i] *= v[i];
  if (with_compute) operands.compute = HostTensor({count}, DType::bf16);
  return operands;
}

StepState some_state() {
  StepState state;
  state.learning_rate = 0.01F;
  state.weight_decay = 0.1F;
  state.bias_correction1 = 0.271F;
  state.bias_correction2 = 0.0297F;
  state.clip_coefficient = 0.5F;
  return state;
}

void check_adamw(std::int64_t count, bool with_compute, bool decay, std::int64_t offset) {
  CAPTURE(count, with_compute, decay, offset);
  const Operands host = operands_of(count, with_compute);
  const StepState state = some_state();
  DeviceCopy device;
  Update args;
  args.decay = decay;
  args.parameter = device.put(host.parameter, offset);
  args.gradient = device.put(host.gradient, offset);
  args.states[0] = device.put(host.m, offset);
  args.states[1] = device.put(host.v, offset);
  args.compute = device.put(host.compute, offset);
  args.state = static_cast<const StepState*>(device.put_bytes(&state, sizeof state));
  const Calls<Update> calls = device.calls(args);
  update(device.context(), calls);

  Update plain = args;
  plain.parameter = host.parameter.tensor();
  plain.gradient = host.gradient.tensor();
  plain.states[0] = host.m.tensor();
  plain.states[1] = host.v.tensor();
  plain.compute = host.compute.tensor();
  plain.state = &state;
  update(plain_context(), Calls<Update>({plain}));
  CHECK(difference(device.get(args.parameter), host.parameter) <= 1e-5);
  CHECK(difference(device.get(args.states[0]), host.m) <= 1e-5);
  CHECK(difference(device.get(args.states[1]), host.v) <= 1e-5);
  if (with_compute) CHECK(difference(device.get(args.compute), host.compute) <= 1.0 / 128);
}

}  // namespace

TEST_CASE("CUDA AdamW rounds moments in bf16 as the plain one does") {
  if (!cuda_available()) return;
  for (const std::int64_t count : {1, 4, 1000, 10003}) {
    CAPTURE(count);
    const Operands host = operands_of(count, true);
    HostTensor m({count}, DType::bf16);
    HostTensor v({count}, DType::bf16);
    StepState state = some_state();
    state.seed = 5;
    state.step = 8;
    DeviceCopy device;
    Update args;
    args.rounding = {.tensor = 77, .first = 1000, .skip = 2, .run = 7, .stride = 50};
    args.parameter = device.put(host.parameter, 0);
    args.gradient = device.put(host.gradient, 0);
    args.states[0] = device.put(m, 0);
    args.states[1] = device.put(v, 0);
    args.state = static_cast<const StepState*>(device.put_bytes(&state, sizeof state));
    const Calls<Update> calls = device.calls(args);
    update(device.context(), calls);
    Update plain = args;
    plain.parameter = host.parameter.tensor();
    plain.gradient = host.gradient.tensor();
    plain.states[0] = m.tensor();
    plain.states[1] = v.tensor();
    plain.state = &state;
    update(plain_context(), Calls<Update>({plain}));
    for (const auto& [on_device, here] :
         {std::pair(args.states[0], &m), std::pair(args.states[1], &v)}) {
      const HostTensor found = device.get(on_device);
      CHECK(difference(found, *here) <= 1.0 / 64);
      std::int64_t others = 0;  // the other neighbour, where fp32 was rounded differently
      for (std::int64_t i = 0; i < count; ++i) {
        if (found.tensor().as<bf16>()[i].bits != here->tensor().as<bf16>()[i].bits) ++others;
      }
      CHECK(others <= 1 + count / 1000);
    }
  }
}

TEST_CASE("CUDA AdamW rounds a parameter in bf16 as the plain one does") {
  if (!cuda_available()) return;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {1, 0}, {4, 0}, {1000, 0}, {1000, 6}, {10003, 0}};
  for (const auto& [count, offset] : sizes) {
    CAPTURE(count, offset);
    const Operands host = operands_of(count, false);
    HostTensor weight = HostTensor::random({count}, DType::bf16, 1);
    StepState state = some_state();
    state.seed = 5;
    state.step = 8;
    DeviceCopy device;
    Update args;
    args.decay = true;
    args.rounding = {.tensor = 77, .first = 1000, .skip = 2, .run = 700, .stride = 800};
    args.parameter = device.put(weight, offset);
    args.gradient = device.put(host.gradient);
    args.states[0] = device.put(host.m);
    args.states[1] = device.put(host.v);
    args.state = static_cast<const StepState*>(device.put_bytes(&state, sizeof state));
    const Calls<Update> calls = device.calls(args);
    update(device.context(), calls);
    Update plain = args;
    plain.parameter = weight.tensor();
    plain.gradient = host.gradient.tensor();
    plain.states[0] = host.m.tensor();
    plain.states[1] = host.v.tensor();
    plain.state = &state;
    update(plain_context(), Calls<Update>({plain}));
    const HostTensor found = device.get(args.parameter);
    CHECK(difference(found, weight) <= 1.0 / 64);
    std::int64_t others = 0;  // the other neighbour, where fp32 was rounded differently
    for (std::int64_t i = 0; i < count; ++i) {
      if (found.tensor().as<bf16>()[i].bits != weight.tensor().as<bf16>()[i].bits) ++others;
    }
    CHECK(others <= 1 + count / 1000);
  }
}

TEST_CASE("CUDA AdamW is the plain one") {
  if (!cuda_available()) return;
  for (const std::int64_t count : {1, 3, 4, 1000, 100003}) {
    check_adamw(count, false, true, 0);
    check_adamw(count, true, false, 0);
    check_adamw(count, true, true, 4);  // fp32 aligned to its elements only
  }
}
