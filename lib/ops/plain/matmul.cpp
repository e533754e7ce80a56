#include "ops/elements.h"
#include "ops/plain/kernels.h"
#include "ops/plain/tell_accesses.h"

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

}  // namespace

void matmul_plain(const OpContext&, const Matmul& args) {
  tell_reads({args.a, args.b, args.bias});
  if (args.accumulate) tell_reads({args.c});
  tell_writes({args.c});
  with_element_type(args.a.dtype, [&](auto in) {
    with_element_type(args.c.dtype, [&](auto out) { multiply<decltype(in), decltype(out)>(args); });
  });
}

}  // namespace trainctl
