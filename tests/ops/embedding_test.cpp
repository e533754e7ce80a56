#include "ops/rows.h"

#include "base/philox.h"
#include "catch.h"
#include "op_values.h"

namespace embedding_test {

using namespace op_test;

namespace {

struct Case {
  std::int64_t tokens, rows, hidden;
  bool accumulate;
};

Values ids(std::int64_t count, std::int64_t below, std::uint64_t stream) {
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = Philox(3, stream).bits(static_cast<std::uint64_t>(i));
    values.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint32_t>(below)));
  }
  return Values::of(values);
}

Case cases() {
  return GENERATE(Case{1, 1, 1, false}, Case{7, 5, 33, true}, Case{100, 11, 64, true},
                  Case{300, 50, 200, false});
}

}  // namespace

TEST_CASE("embedding gives the plain rows and zeros outside its shard") {
  const Case c = cases();
  for (const DType type : float_types) {
    Values indices = ids(c.tokens, 2 * c.rows, 1);
    Values table = Values::random(Shape{c.rows, c.hidden}, type, 3);
    const auto run = [&](const Kernels& kernels) {
      Values y = Values::random(Shape{c.tokens, c.hidden}, type, 5);
      embedding_forward(Host(kernels).context(), {.indices = indices.tensor(),
                                                  .table = table.tensor(),
                                                  .first_row = c.rows / 2,
                                                  .y = y.tensor(),
                                                  .accumulate = c.accumulate});
      return y;
    };
    CHECK(run(tested_kernels()) == run(plain_kernels));
  }
}

TEST_CASE("embedding of one token") {
  for (const Kernels* kernels : {&tested_kernels(), &plain_kernels}) {
    Values indices = Values::of<std::int32_t>({12, 9, 13});
    Values table(Shape{3, 2}, DType::f32);  // rows 10, 11 and 12 of the whole
    for (std::int64_t i = 0; i < 6; ++i) table.set(i, static_cast<float>(i + 1));
    Values y(Shape{3, 2}, DType::f32);
    const auto run = [&](bool accumulate) {
      embedding_forward(Host(*kernels).context(), {.indices = indices.tensor(),
                                                   .table = table.tensor(),
                                                   .first_row = 10,
                                                   .y = y.tensor(),
                                                   .accumulate = accumulate});
    };
    run(false);
    CHECK(y.at(0) == 5);
    CHECK(y.at(1) == 6);
    for (std::int64_t i = 2; i < 6; ++i) CHECK(y.at(i) == 0);
    run(true);
    CHECK(y.at(0) == 10);
    CHECK(y.at(1) == 12);
    for (std::int64_t i = 2; i < 6; ++i) CHECK(y.at(i) == 0);
  }
}

TEST_CASE("embedding's backward adds as the plain one, with any number of threads") {
  const Case c = cases();
  for (const DType type : float_types) {
    Values indices = ids(c.tokens, 2 * c.rows, 1);
    Values dy = Values::random(Shape{c.tokens, c.hidden}, type, 3);
    const auto run = [&](const Kernels& kernels, int threads) {
      Values dtable = Values::random(Shape{c.rows, c.hidden}, DType::f32, 4);
      embedding_backward(Host(kernels, threads).context(), {.indices = indices.tensor(),
                                                            .first_row = c.rows / 2,
                                                            .dy = dy.tensor(),
                                                            .dtable = dtable.tensor()});
      return dtable;
    };
    const auto plain = run(plain_kernels, 1);
    CHECK(run(tested_kernels(), 1) == plain);
    CHECK(run(tested_kernels(), 3) == plain);
  }
}

TEST_CASE("embedding's backward is the slope of its forward") {
  Values indices = Values::of<std::int32_t>({2, 0, 2, 7});
  Values table = Values::random(Shape{3, 4}, DType::f32, 1);
  Values dy = Values::random(Shape{4, 4}, DType::f32, 3);
  Values y(Shape{4, 4}, DType::f32);
  Values dtable(Shape{3, 4}, DType::f32);
  embedding_backward(Host(tested_kernels()).context(),
                     {.indices = indices.tensor(), .dy = dy.tensor(), .dtable = dtable.tensor()});
  const Host plain(plain_kernels);
  const auto loss = [&] {
    embedding_forward(plain.context(),
                      {.indices = indices.tensor(), .table = table.tensor(), .y = y.tensor()});
    return weighted_sum(y, dy);
  };
  CHECK(slope_error(table, dtable, 0.25F, loss) < 1e-5);
}

TEST_CASE("embedding names what does not fit") {
  Values indices = Values::of<std::int32_t>({1, 2});
  Values table(Shape{3, 4}, DType::f32);
  Values y(Shape{2, 5}, DType::f32);
  const Host host(tested_kernels());
  CHECK(failure_of([&] {
          embedding_forward(
              host.context(),
              {.indices = indices.tensor(), .table = table.tensor(), .y = y.tensor()});
        }) ==
        "[embedding] y must have one row per index, as wide and of the type of table: "
        "indices [2] i32, table [3, 4] fp32, y [2, 5] fp32");
  CHECK(starts_with(failure_of([&] {
                      embedding_backward(host.context(), {.indices = indices.tensor(),
                                                          .dy = y.tensor(),
                                                          .dtable = table.tensor()});
                    }),
                    "[embedding_backward] dtable must be an fp32 matrix as wide as dy"));
}

}  // namespace embedding_test
