// The thread sanitizer does not watch these loops, which would take most of its tests' time: the
// kernel says at once what it reads and writes.
#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

template <class In, class Out>
void multiply(const Matmul& args) {
  const MatmulShape s = shape_of(args);
  const In* a = args.a.as<In>();
  const In* b = args.b.as<In>();
  Out* c = args.c.as<Out>();
  for (std::int64_t row = 0; row < s.m; ++row) {
    for (std::int64_t column = 0; column < s.n; ++column) {
      Out& result = c[row * s.n + column];
      double sum = s.accumulate ? to_float(result) : 0.0F;
      if (s.bias) sum = args.bias.as<float>()[column];
      for (std::int64_t i = 0; i < s.k; ++i) {
        const float left = to_float(a[s.transpose_a ? i * s.m + row : row * s.k + i]);
        const float right = to_float(b[s.transpose_b ? column * s.k + i : i * s.n + column]);
        sum += static_cast<double>(left) * static_cast<double>(right);
      }
      result = from_float<Out>(static_cast<float>(sum));
    }
  }
}

#if defined(TRAINCTL_TELLS_TSAN)
extern "C" {
void __tsan_read_range(void* data, unsigned long bytes);
void __tsan_write_range(void* data, unsigned long bytes);
}

void tell_accesses(const Matmul& args) {
  const auto bytes = [](const Tensor& tensor) {
    return static_cast<unsigned long>(tensor.bytes());
  };
  for (const Tensor& operand : {args.a, args.b, args.bias}) {
    if (!operand.empty()) __tsan_read_range(operand.data, bytes(operand));
  }
  if (args.accumulate) __tsan_read_range(args.c.data, bytes(args.c));
  __tsan_write_range(args.c.data, bytes(args.c));
}
#else
void tell_accesses(const Matmul&) {}
#endif

}  // namespace

void matmul_plain(const OpContext&, const Matmul& args) {
  tell_accesses(args);
  with_element_type(args.a.dtype, [&](auto in) {
    with_element_type(args.c.dtype, [&](auto out) { multiply<decltype(in), decltype(out)>(args); });
  });
}

}  // namespace trainctl
