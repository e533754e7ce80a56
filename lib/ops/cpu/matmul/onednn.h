// The one place that knows which oneDNN is installed: version 2.6 (Debian 12) or 3. Products of
// plain row-major matrices through its matmul primitive. Internal to lib/ops.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "base/dtype.h"
#include "base/error.h"
#include "ops/cpu_level.h"

namespace trainctl::onednn {

/// Keeps oneDNN, which looks at the processor itself, to the instructions of `level`. Only before
/// its first product.
inline void limit_instructions(CpuLevel level) {
  const dnnl::cpu_isa isa = level == CpuLevel::amx           ? dnnl::cpu_isa::avx512_core_amx
                            : level == CpuLevel::avx512_bf16 ? dnnl::cpu_isa::avx512_core_bf16
                            : level == CpuLevel::avx512      ? dnnl::cpu_isa::avx512_core
                                                             : dnnl::cpu_isa::avx2;
  // A oneDNN without this function uses all that there is, which is right at the highest level.
  require(
      dnnl::set_max_cpu_isa(isa) == dnnl::status::success || level == available_cpu_levels().back(),
      ExitCode::unavailable,
      "this oneDNN cannot be kept to CPU level " + std::string(name_of(level)));
}

inline const dnnl::engine& engine() {
  static const dnnl::engine cpu = [] {
    limit_instructions(cpu_level());
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return cpu;
}

inline dnnl::memory::data_type type_of(DType type) {
  return type == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// What a product reads and writes; `bias` is a zero descriptor where there is none.
struct MatmulOperands {
  dnnl::memory::desc a, b, bias, c;
};

#if DNNL_VERSION_MAJOR >= 3

inline dnnl::matmul::primitive_desc describe(const MatmulOperands& operands,
                                             const dnnl::primitive_attr& attributes) {
  using Description = dnnl::matmul::primitive_desc;
  return operands.bias.is_zero()
             ? Description(engine(), operands.a, operands.b, operands.c, attributes)
             : Description(engine(), operands.a, operands.b, operands.bias, operands.c, attributes);
}

#else

inline dnnl::matmul::primitive_desc describe(const MatmulOperands& operands,
                                             const dnnl::primitive_attr& attributes) {
  const dnnl::matmul::desc description =
      operands.bias.is_zero()
          ? dnnl::matmul::desc(operands.a, operands.b, operands.c)
          : dnnl::matmul::desc(operands.a, operands.b, operands.bias, operands.c);
  return {description, attributes, engine()};
}

#endif

}  // namespace trainctl::onednn
