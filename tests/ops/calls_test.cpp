// Many calls as one give what each of them gives alone, to the bit: tensors of different lengths
// and types, some without elements, some not aligned.
#include "ops/optimizer.h"

#include "catch.h"
#include "op_values.h"

namespace calls_test {

using namespace op_test;

namespace {

constexpr std::int64_t lengths[] = {5, 4096, 0, 1, 9001, 0, 4097, 12};

StepState step_state() {
  StepState state = adamw_step_state();
  state.seed = 7;
  state.step = 2;
  return state;
}

/// Operands of one length in a longer row, from its second element on where `skip` is 1.
struct Operand {
  Values parameter, gradient, m, v, compute;
  std::int64_t length, skip;

  Operand(std::int64_t count, std::uint64_t number)
      : parameter(Values::random(Shape{count + 2}, DType::f32, number)),
        gradient(Values::random(Shape{count + 2}, number % 2 == 0 ? DType::f32 : DType::bf16, 20)),
        m(Shape{count + 2}, number % 4 < 2 ? DType::f32 : DType::bf16),
        v(Shape{count + 2}, number % 4 == 3 ? DType::bf16 : DType::f32),
        compute(Shape{count + 2}, number % 2 == 0 ? DType::bf16 : DType::f16),
        length(count),
        skip(number % 3 == 1 ? 1 : 0) {}
  Tensor of(Values& values) const { return values.tensor().slice(skip, skip + length); }
};

std::vector<Operand> operands() {
  std::vector<Operand> list;
  for (const std::int64_t length : lengths) list.emplace_back(length, list.size());
  return list;
}

Update adamw_of(Operand& x, const StepState& state) {
  return {.parameter = x.of(x.parameter),
          .gradient = x.of(x.gradient),
          .states = {x.of(x.m), x.of(x.v)},
          .compute = x.length % 5 == 0 ? Tensor{} : x.of(x.compute),
          .decay = x.skip == 0,
          .rounding = {.tensor = 3, .first = 40, .skip = 2, .run = 7, .stride = 50},
          .state = &state};
}

}  // namespace

TEST_CASE("adamw of many tensors is that of each") {
  const StepState state = step_state();
  std::vector<Operand> together = operands();
  std::vector<Operand> alone = operands();
  std::vector<Update> list;
  for (Operand& x : together) list.push_back(adamw_of(x, state));
  const Host host(tested_kernels());
  update(host.context(), Calls<Update>(list));
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CAPTURE(i);
    Operand& x = alone[i];
    const Values before = x.parameter;
    update(host.context(), one(adamw_of(x, state)));
    CHECK(x.parameter == together[i].parameter);
    CHECK(x.m == together[i].m);
    CHECK(x.v == together[i].v);
    CHECK(x.compute == together[i].compute);
    CHECK((x.parameter == before) == (x.length == 0));
  }
}

TEST_CASE("sgd of many tensors is that of each") {
  const StepState state = step_state();
  std::vector<Operand> together = operands();
  std::vector<Operand> alone = operands();
  const auto sgd_of = [&state](Operand& x) {
    return Update{.rule = UpdateRule::sgd,
                  .parameter = x.of(x.parameter),
                  .gradient = x.of(x.gradient),
                  .states = {x.m.tensor().dtype == DType::f32 ? x.of(x.m) : Tensor{}},
                  .compute = x.of(x.compute),
                  .constants = {.momentum = x.m.tensor().dtype == DType::f32 ? 0.9F : 0.0F},
                  .decay = x.skip == 0,
                  .state = &state};
  };
  std::vector<Update> list;
  for (Operand& x : together) list.push_back(sgd_of(x));
  const Host host(tested_kernels());
  update(host.context(), Calls<Update>(list));
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CAPTURE(i);
    Operand& x = alone[i];
    update(host.context(), one(sgd_of(x)));
    CHECK(x.parameter == together[i].parameter);
    CHECK(x.m == together[i].m);
    CHECK(x.compute == together[i].compute);
  }
}

TEST_CASE("square_sum of many tensors adds to their results in order") {
  std::vector<Operand> list = operands();
  double together[2] = {1, 2};
  double alone[2] = {1, 2};
  std::vector<SquareSum> calls;
  const Host host(tested_kernels());
  for (Operand& x : list) {
    double* const result = together + (calls.size() / 3) % 2;
    calls.push_back({.x = x.of(x.gradient), .result = result});
    square_sum(host.context(),
               one<SquareSum>({.x = calls.back().x, .result = alone + (result - together)}));
  }
  square_sum(host.context(), Calls<SquareSum>(calls));
  CHECK(together[0] == alone[0]);
  CHECK(together[1] == alone[1]);
  CHECK(together[0] > 1000);
  CHECK(together[1] > 1000);
}

TEST_CASE("an empty list of calls does nothing") {
  const Host host(tested_kernels());
  update(host.context(), Calls<Update>());
  square_sum(host.context(), Calls<SquareSum>());
}

TEST_CASE("calls are cut into pieces of one size, of which there are not too many") {
  const std::vector<std::int64_t> some{5, 0, 4096, 4097};
  std::int64_t size = 0;
  CHECK(cut_into_pieces(some, size) == std::vector<std::int64_t>{0, 1, 1, 2, 4});
  CHECK(size == min_piece);
  // 32 billion elements in two tensors and a small one.
  const std::vector<std::int64_t> large{std::int64_t{1} << 34, 10, std::int64_t{1} << 34};
  CHECK(cut_into_pieces(large, size) == std::vector<std::int64_t>{0, 32768, 32769, 65537});
  CHECK(size == std::int64_t{1} << 19);
  const std::vector<std::int64_t> most(max_pieces / 2, 1);
  CHECK(cut_into_pieces(most, size).back() == max_pieces / 2);
  const std::vector<std::int64_t> too_many(max_pieces / 2 + 1, 1);
  CHECK_THROWS_AS(cut_into_pieces(too_many, size), Error);
}

}  // namespace calls_test
