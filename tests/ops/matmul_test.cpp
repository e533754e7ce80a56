#include "ops/matmul.h"

#include <thread>

#include "catch.h"
#include "count_large.h"
#include "op_values.h"
#include "thorough.h"

namespace matmul_test {

using namespace op_test;

namespace {

Shape stored(std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

constexpr std::pair<DType, DType> operands_and_results[] = {{DType::f32, DType::f32},
                                                            {DType::bf16, DType::f32},
                                                            {DType::bf16, DType::bf16},
                                                            {DType::f16, DType::f32},
                                                            {DType::f16, DType::f16}};

/// As products whose extents vary: in register tiles where cpu_kernels() would use them for large
/// ones only.
Kernels tile_kernels() {
  Kernels kernels = cpu_kernels();
  kernels.matmul = [](const OpContext& context, const Matmul& args) {
    Matmul any = args;
    any.varies = true;
    cpu_kernels().matmul(context, any);
  };
  return kernels;
}

/// The largest difference to the plain loops for one shape on random operands: of the CPU's kernel
/// and of its tiles, with one and with two threads.
double difference_of(const MatmulShape& s) {
  Values a = Values::random(stored(s.m, s.k, s.transpose_a), s.operand, 1);
  Values b = Values::random(stored(s.k, s.n, s.transpose_b), s.operand, 2);
  Values bias = Values::random(Shape{s.n}, DType::f32, 3);
  const Values before = Values::random(Shape{s.m, s.n}, s.result, 4);
  const auto run = [&](const Kernels& kernels, int threads) {
    Values c = before;
    const Host host(kernels, threads);
    matmul(host.context(), {.a = a.tensor(),
                            .b = b.tensor(),
                            .c = c.tensor(),
                            .bias = s.bias ? bias.tensor() : Tensor{},
                            .transpose_a = s.transpose_a,
                            .transpose_b = s.transpose_b,
                            .accumulate = s.accumulate});
    return c;
  };
  const Values plain = run(plain_kernels, 1);
  double most = 0;
  for (const Kernels& kernels : {tested_kernels(), tile_kernels()}) {
    for (const int threads : {1, 2}) {
      most = std::max(most, difference(run(kernels, threads), plain));
    }
  }
  return most;
}

struct Size {
  std::int64_t m, n, k;
};

}  // namespace

TEST_CASE("matmul agrees with the plain loops") {
  const auto size = GENERATE(
      Size{1, 1, 1}, Size{3, 5, 7}, Size{64, 32, 48}, Size{33, 65, 129}, Size{1, 97, 300},
      Size{130, 1, 31}, Size{14, 32, 512}, Size{29, 70, 1100}, Size{300, 40, 16}, Size{7, 600, 2},
      Size{500, 33, 3}, Size{37, 200, 801}, Size{300, 20, 1100}, Size{13, 700, 65});
  for (int flags = 0; flags < 8; ++flags) {
    const bool ta = (flags & 1) != 0;
    const bool tb = (flags & 2) != 0;
    const bool accumulate = (flags & 4) != 0;
    const bool bias = !accumulate && ta == tb;
    int pair = 0;
    for (const auto& [operand, result] : operands_and_results) {
      // Large sizes: each of the flags and each pair of types, not each with each.
      if (size.m * size.n * size.k > 300'000 && pair++ != flags % 5 && !thorough()) continue;
      const MatmulShape shape{size.m, size.n, size.k, ta, tb, accumulate, bias, operand, result};
      INFO(size.m << "x" << size.n << "x" << size.k << " flags " << flags << " " << name_of(operand)
                  << " to " << name_of(result));
      CHECK(difference_of(shape) < tolerance(result));
    }
  }
}

TEST_CASE("matmul with nothing to sum leaves zero or c, and may have no rows") {
  Values memory(Shape{16}, DType::f32);
  Values c = Values::random(Shape{3, 4}, DType::f32, 1);
  const Host host(tested_kernels());
  const auto view = [&](const Shape& shape) {
    Tensor tensor = memory.tensor();
    tensor.shape = shape;
    return tensor;
  };
  const Values before = c;
  const Tensor a = view({3, 0});
  const Tensor b = view({0, 4});
  matmul(host.context(), {.a = a, .b = b, .c = c.tensor(), .accumulate = true});
  CHECK(c == before);
  matmul(host.context(), {.a = a, .b = b, .c = c.tensor()});
  CHECK(c == Values(Shape{3, 4}, DType::f32));
  CHECK_NOTHROW(matmul(host.context(), {.a = view({0, 4}), .b = view({4, 4}), .c = view({0, 4})}));
}

TEST_CASE("matmul does not depend on earlier contents of c or of its scratch") {
  const DType type = GENERATE(DType::f32, DType::bf16, DType::f16);
  Values a = Values::random(Shape{40, 23}, type, 1);
  Values b = Values::random(Shape{23, 56}, type, 2);
  Values c(Shape{40, 56}, type);
  for (std::int64_t i = 0; i < c.numel(); ++i) c.set(i, NAN);
  Values again = Values::random(Shape{40, 56}, type, 3);
  const Kernels kernels = GENERATE(false, true) ? tile_kernels() : tested_kernels();
  const Host host(kernels);
  matmul(host.context(), {.a = a.tensor(), .b = b.tensor(), .c = c.tensor()});
  matmul(host.context(), {.a = a.tensor(), .b = b.tensor(), .c = again.tensor()});
  CHECK(c == again);
}

TEST_CASE("matmul allocates no large block once it has seen a shape") {
  if (tests_device()) return;  // operands are copied, to new memory
  const auto size = GENERATE(Size{300, 200, 700}, Size{3, 200, 700}, Size{64, 9, 1000});
  const Kernels kernels = GENERATE(false, true) ? tile_kernels() : tested_kernels();
  for (const DType type : float_types) {
    Values a = Values::random(Shape{size.m, size.k}, type, 1);
    Values b = Values::random(Shape{size.n, size.k}, type, 2);
    Values c(Shape{size.m, size.n}, type);
    const Host host(kernels);
    const auto run = [&] {
      matmul(host.context(),
             {.a = a.tensor(), .b = b.tensor(), .c = c.tensor(), .transpose_b = true});
    };
    run();
    run();
    const int before = op_test::large_blocks();
    run();
    CHECK(op_test::large_blocks() == before);
  }
}

TEST_CASE("matmul cuts long sums and little scratch into more passes") {
  if (tests_device()) return;  // of the CPU's tiles alone
  const auto size = GENERATE(Size{40, 70, 9000}, Size{700, 400, 2100}, Size{16, 3000, 1300});
  const std::int64_t kib = GENERATE(400, 8192, 1000);
  if (brief() && kib == 1000) return;
  for (const auto& [type, result] : operands_and_results) {
    Values a = Values::random(Shape{size.m, size.k}, type, 1, 0.1F);
    Values b = Values::random(Shape{size.n, size.k}, type, 2, 0.1F);
    Values bias = Values::random(Shape{size.n}, DType::f32, 3);
    Values c(Shape{size.m, size.n}, result);
    const Kernels kernels = tile_kernels();
    const Host host(kernels, 1);
    Memory scratch(kib * 1024);
    OpContext context = host.context();
    context.scratch = scratch.data();
    context.scratch_bytes = kib * 1024;
    matmul(context, {.a = a.tensor(),
                     .b = b.tensor(),
                     .c = c.tensor(),
                     .bias = bias.tensor(),
                     .transpose_b = true});
    double apart = 0;
    for (std::int64_t at = 0; at < c.numel(); at += 97) {  // some elements: the sums are long
      double sum = bias.at(at % size.n);
      for (std::int64_t i = 0; i < size.k; ++i) {
        sum += a.at(at / size.n * size.k + i) * b.at(at % size.n * size.k + i);
      }
      apart = std::max(apart, std::abs(c.at(at) - sum));
    }
    CHECK(apart < 5 * tolerance(result));
  }
}

TEST_CASE("the sums of tiles do not depend on the thread count") {
  if (tests_device()) return;
  const auto size = GENERATE(Size{40, 70, 9000}, Size{300, 800, 2500});
  const Kernels kernels = tile_kernels();
  for (const auto& [type, result] : operands_and_results) {
    Values a = Values::random(Shape{size.k, size.m}, type, 1);
    Values b = Values::random(Shape{size.k, size.n}, type, 2);
    const Values before = Values::random(Shape{size.m, size.n}, result, 3);
    const auto run = [&](int threads) {
      Values c = before;
      const Host host(kernels, threads);
      matmul(host.context(), {.a = a.tensor(),
                              .b = b.tensor(),
                              .c = c.tensor(),
                              .transpose_a = true,
                              .accumulate = true});
      return c;
    };
    const Values one = run(1);
    INFO(name_of(type) << " to " << name_of(result));
    CHECK(run(2) == one);
    CHECK(run(4) == one);
  }
}

TEST_CASE("matmul runs in several rank threads at once") {
  const MatmulShape shape{70, 130, 90, false, true, false, false, DType::f32, DType::f32};
  std::vector<double> results(4, INFINITY);
  std::vector<std::thread> ranks;
  for (double& result : results) ranks.emplace_back([&] { result = difference_of(shape); });
  for (std::thread& rank : ranks) rank.join();
  for (const double result : results) CHECK(result < 2e-6);
}

TEST_CASE("matmul's gradients are matmuls") {
  // loss = sum(w * (x W^T)): dx = w W and dW = w^T x, against finite differences of the plain
  // loops.
  Values x = Values::random(Shape{5, 6}, DType::f32, 1);
  Values weight = Values::random(Shape{4, 6}, DType::f32, 2);
  Values dy = Values::random(Shape{5, 4}, DType::f32, 3);
  Values y(Shape{5, 4}, DType::f32);
  Values dx(Shape{5, 6}, DType::f32);
  Values dweight(Shape{4, 6}, DType::f32);
  const Host fast(tested_kernels());
  const Host plain(plain_kernels);
  matmul(fast.context(), {.a = dy.tensor(), .b = weight.tensor(), .c = dx.tensor()});
  matmul(fast.context(), {.a = dy.tensor(),
                          .b = x.tensor(),
                          .c = dweight.tensor(),
                          .transpose_a = true,
                          .accumulate = true});
  const auto loss = [&] {
    matmul(plain.context(),
           {.a = x.tensor(), .b = weight.tensor(), .c = y.tensor(), .transpose_b = true});
    return weighted_sum(y, dy);
  };
  CHECK(slope_error(x, dx, 0.25F, loss) < 1e-5);
  CHECK(slope_error(weight, dweight, 0.25F, loss) < 1e-5);
}

TEST_CASE("matmul records its calls when asked") {
  std::vector<Matmul> list;
  record_matmuls(&list);
  const MatmulShape shape{3, 5, 2, true, false, true, false, DType::bf16, DType::f32};
  difference_of(shape);
  record_matmuls(nullptr);
  difference_of(shape);
  REQUIRE(list.size() == 5);
  for (const Matmul& call : list) CHECK(shape_of(call) == shape);
}

TEST_CASE("matmul names what does not fit") {
  Values a(Shape{2, 3}, DType::f32);
  Values b(Shape{4, 5}, DType::f32);
  Values half(Shape{3, 5}, DType::bf16);
  Values c(Shape{2, 5}, DType::f32);
  Values vector(Shape{2}, DType::f32);
  const Host host(tested_kernels());
  const auto failure = [&](const Matmul& args) {
    return failure_of([&] { matmul(host.context(), args); });
  };
  CHECK(failure({.a = a.tensor(), .b = b.tensor(), .c = c.tensor()}) ==
        "[matmul] a b must fit c: a [2, 3] fp32, b [4, 5] fp32, c [2, 5] fp32");
  CHECK(failure({.a = a.tensor(), .b = half.tensor(), .c = c.tensor()}) ==
        "[matmul] a and b must both be fp32, bf16 or fp16: a [2, 3] fp32, b [3, 5] bf16");
  CHECK(starts_with(failure({.a = a.tensor(), .b = b.tensor(), .c = vector.tensor()}),
                    "[matmul] a, b and c must be matrices"));
  CHECK(starts_with(failure({.a = a.tensor(), .b = b.tensor(), .c = {}}),
                    "[matmul] a, b and c must be matrices"));
  Values square(Shape{3, 5}, DType::f32);
  CHECK(starts_with(failure({.a = a.tensor(), .b = square.tensor(), .c = half.tensor()}),
                    "[matmul] c must be fp32, or of the type of a and b"));
  CHECK(starts_with(
      failure({.a = a.tensor(), .b = square.tensor(), .c = c.tensor(), .bias = vector.tensor()}),
      "[matmul] bias must be an fp32 vector"));
}

}  // namespace matmul_test
