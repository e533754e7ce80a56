#include "engine/diagnose.h"

#include <cmath>

#include "base/fp16.h"
#include "device/host_values.h"

namespace trainctl {

namespace {

template <class T>
bool finite(const Tensor& x) {
  const T* values = x.as<T>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (!std::isfinite(to_float(values[i]))) return false;
  }
  return true;
}

}  // namespace

bool all_finite(const Tensor& of_device) {
  const HostValues on_host(of_device);
  const Tensor& x = on_host.values();
  if (x.dtype == DType::f32) return finite<float>(x);
  if (x.dtype == DType::bf16) return finite<bf16>(x);
  if (x.dtype == DType::f16) return finite<fp16>(x);
  return true;
}

std::string first_bad_tensor(const StagePlan& stage, const ParamStore& store,
                             const Buffers& buffers, int view) {
  const int count = static_cast<int>(store.table().size());
  for (int i = 0; i < count; ++i) {
    const std::string& name = store.table()[static_cast<std::size_t>(i)].name;
    const bool finite =
        all_finite(store.master(i)) && (!store.stays(i) || all_finite(store.resident(i)));
    if (!finite) return "parameter " + name;
  }
  for (const ActivationSpec& spec : stage.activations) {
    const bool kept = spec.storage == Storage::input || spec.storage == Storage::forward ||
                      spec.storage == Storage::statistic || spec.storage == Storage::host;
    const auto row = static_cast<std::size_t>(&spec - stage.activations.data());
    const ActivationSlots& slots = stage.activation_slots;
    if (!kept || !slots.lasts(row) || !slots.has(row, view)) continue;
    if (!all_finite(buffers.at(view, static_cast<int>(row)))) return "activation " + spec.name;
  }
  for (int i = 0; i < count; ++i) {
    const std::string& name = store.table()[static_cast<std::size_t>(i)].name;
    if (!all_finite(store.gradient(i))) return "gradient of " + name;
  }
  return "";
}

}  // namespace trainctl
