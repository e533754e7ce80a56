// Iterates over the entries of the kernel table, with their names.
#pragma once

#include <string_view>
#include <type_traits>

#include "ops/activation.h"
#include "ops/kernels.h"
#include "ops/update_rules.h"

namespace trainctl {

/// A member of Kernels as a compile-time constant, distinguishable by its type.
template <auto member>
using KernelEntry = std::integral_constant<decltype(member), member>;

/// Calls visit(KernelEntry, name) for each entry, in table order.
template <class Visit>
void each_kernel(const Visit& visit) {
#define KERNEL(entry, Args) visit(KernelEntry<&Kernels::entry>{}, #entry);
#include "ops/kernels.def"
#undef KERNEL
}

/// The name of a call: that of its entry, or if the operation has kinds, of the kind, such as
/// "gelu_forward".
template <class Args>
std::string_view name_of_call(const Args&, std::string_view entry) {
  return entry;
}
inline std::string_view name_of_call(const NormForward& args, std::string_view) {
  return name_of_forward(args.kind);
}
inline std::string_view name_of_call(const NormBackward& args, std::string_view) {
  return name_of_backward(args.kind);
}
inline std::string_view name_of_call(const ActivationArgs& args, std::string_view) {
  const bool gated = !args.up.empty();
  return args.dy.empty() ? name_of_forward(args.kind, gated) : name_of_backward(args.kind, gated);
}
inline std::string_view name_of_call(const Calls<Update>& calls, std::string_view entry) {
  return calls.list().empty() ? entry : name_of(calls.list().front().rule);
}

/// Makes kernels_for() return this table, in the whole process; null restores the device's own.
/// For measurements: its entries observe a call and forward it to own_kernels().
void replace_kernels(const Kernels* kernels);
/// The device's own table, even if it is replaced.
const Kernels& own_kernels(DeviceKind device);

}  // namespace trainctl
