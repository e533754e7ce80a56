#include "ops/check.h"

#include <string>

#include "base/error.h"

namespace trainctl {

namespace {

std::string describe(const Tensor& tensor) {
  if (tensor.empty()) return "(none)";
  return tensor.shape.to_string() + " " + std::string(name_of(tensor.dtype));
}

}  // namespace

void fail_check(std::string_view op, std::string_view rule,
                std::initializer_list<Operand> operands) {
  std::string message = "[" + std::string(op) + "] " + std::string(rule);
  std::string_view separator = ": ";
  for (const Operand& operand : operands) {
    message += std::string(separator) + std::string(operand.name) + " " + describe(operand.tensor);
    separator = ", ";
  }
  throw Error(ExitCode::internal, message);
}

void fail_missing(const OpContext& context, std::string_view op) {
  throw Error(ExitCode::unavailable, "[" + std::string(op) + "] is not built for " +
                                         std::string(context.kernels->name) + " yet");
}

}  // namespace trainctl
