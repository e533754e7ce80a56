#include "ops/router.h"

#include <algorithm>
#include <numeric>

#include "catch.h"
#include "op_values.h"

namespace router_test {

using namespace op_test;

namespace {

struct Sizes {
  std::int64_t tokens, experts, topk, group;
  std::int64_t capacity = 0;  // places of an expert in a group; 0: no limit
  Overflow overflow = Overflow::position;
  RouterChoice choice{};
  RowOrder order{};
  std::int64_t first = 0, count = 0;
  std::int64_t chunks = 1;
  std::int64_t place_group = 0;      // 0: group
  std::vector<std::uint8_t> real{};  // empty: all are

  Tensor marks() const {
    if (real.empty()) return {};
    auto* data = const_cast<std::uint8_t*>(real.data());
    return {data, Shape{std::ssize(real)}, DType::u8, DeviceKind::cpu};
  }

  double factor = 0;  // of the capacity, as it is given

  RouterCapacity limit() const {
    const std::int64_t of = place_group > 0 ? place_group : group;
    if (factor > 0) return {of, factor, overflow};
    const double choices = static_cast<double>(topk * of);
    const double places = (static_cast<double>(capacity) - 0.5) * static_cast<double>(experts);
    return {of, capacity > 0 ? places / choices : 0, overflow};
  }
};

struct Routed {
  Values chosen, weight, slot, choices, counts;
  explicit Routed(const Sizes& s)
      : chosen({s.tokens, s.topk}, DType::i32),
        weight({s.tokens, s.topk}, DType::f32),
        slot({s.tokens, s.topk}, DType::i32),
        choices({s.tokens / s.group * s.choice.counted(s.topk), s.experts}, DType::i32),
        counts({s.experts}, DType::i64) {}
};

template <class T>
std::vector<T> list_of(Values values) {
  const Tensor tensor = values.tensor();
  return {tensor.as<T>(), tensor.as<T>() + tensor.numel()};
}

Routed route(Values& logits, const Sizes& s, const Tensor& bias = {},
             const Kernels& kernels = tested_kernels()) {
  const Host host(kernels);
  Routed routed(s);
  router_forward(host.context(), {.logits = logits.tensor(),
                                  .real = s.marks(),
                                  .order = s.order,
                                  .bias = bias,
                                  .group = s.group,
                                  .capacity = s.limit(),
                                  .choice = s.choice,
                                  .chosen = routed.chosen.tensor(),
                                  .weight = routed.weight.tensor(),
                                  .first = s.first,
                                  .count = s.count,
                                  .chunks = s.chunks,
                                  .slot = routed.slot.tensor(),
                                  .choices = routed.choices.tensor(),
                                  .counts = routed.counts.tensor()});
  return routed;
}

/// The rows of `values` as ranks have gathered them.
Values in_order(const Values& values, std::int64_t columns, const RowOrder& order) {
  Values moved = values;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::int64_t token = order.token_of(i / columns);
    moved.set(i, static_cast<float>(values.at(token * columns + i % columns)));
  }
  return moved;
}

Values matrix(const std::vector<float>& elements, std::int64_t columns) {
  Values values({static_cast<std::int64_t>(elements.size()) / columns, columns}, DType::f32);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    values.set(static_cast<std::int64_t>(i), elements[i]);
  }
  return values;
}

using enum ExpertWeights;

/// Every kind of weights, where experts are chosen at once and in rounds.
std::vector<RouterChoice> all_choices() {
  std::vector<RouterChoice> list;
  for (const ExpertWeights weighting : {all, chosen, kept}) {
    list.push_back({.weighting = weighting, .scaling = 1.5F});
    list.push_back({.sigmoid = true, .weighting = weighting, .scaling = 2.5F});
    list.push_back({.weighting = weighting, .rounds = true});
  }
  return list;
}

constexpr Overflow all_overflows[] = {Overflow::position, Overflow::probability, Overflow::token};

Values random_logits(const Sizes& s) {
  return Values::random({s.tokens, s.experts}, DType::f32, 5, 2.0F);
}

}  // namespace

TEST_CASE("a router chooses the largest logits, of equal ones the first") {
  Values logits = matrix({0, 3, 1, 2,  //
                          1, 1, 1, 1},
                         4);
  Routed routed = route(logits, {2, 4, 2, 2});
  CHECK(list_of<std::int32_t>(routed.chosen) == std::vector<std::int32_t>{1, 3, 0, 1});
  CHECK(routed.weight.at(2) == Approx(0.25));
  CHECK(routed.weight.at(0) / routed.weight.at(1) == Approx(std::exp(1.0)));
  CHECK(list_of<std::int32_t>(routed.choices) == std::vector<std::int32_t>{1, 2, 0, 1});
  CHECK(list_of<std::int64_t>(routed.counts) == std::vector<std::int64_t>{1, 2, 0, 1});
  // Expert 0 has token 1, expert 1 tokens 0 and 1, expert 3 token 0.
  CHECK(list_of<std::int32_t>(routed.slot) == std::vector<std::int32_t>{1, 3, 0, 2});
}

TEST_CASE("weights after the choice add up to 1") {
  const Sizes sizes{
      .tokens = 6, .experts = 8, .topk = 3, .group = 3, .choice = {.weighting = chosen}};
  Values logits = random_logits(sizes);
  Routed routed = route(logits, sizes);
  for (std::int64_t t = 0; t < sizes.tokens; ++t) {
    double sum = 0;
    for (std::int64_t j = 0; j < 3; ++j) sum += routed.weight.at(3 * t + j);
    CHECK(sum == Approx(1));
  }
}

TEST_CASE("a full expert takes first choices before second ones, and earlier tokens") {
  Values logits = matrix({2, 1, 0,  //
                          2, 1, 0,  //
                          1, 2, 0,  //
                          2, 1, 0},
                         3);
  Routed routed = route(logits, {.tokens = 4, .experts = 3, .topk = 2, .group = 2, .capacity = 1});
  CHECK(list_of<std::int32_t>(routed.chosen) ==
        std::vector<std::int32_t>{0, 1, ~0, ~1, 1, ~0, 0, ~1});
  CHECK(list_of<std::int32_t>(routed.slot) ==
        std::vector<std::int32_t>{0, 2, -1, -1, 3, -1, 1, -1});
  CHECK(list_of<std::int32_t>(routed.choices) == std::vector<std::int32_t>{2, 2, 0, 2, 2, 0});
  CHECK(list_of<std::int64_t>(routed.counts) == std::vector<std::int64_t>{2, 2, 0});
}

TEST_CASE("a full expert may take the largest weights") {
  Values logits = matrix({1, 0, 0,  //
                          3, 0, 0,  //
                          2, 0, 0,  //
                          3, 0, 0},
                         3);
  Routed routed = route(logits, {.tokens = 4,
                                 .experts = 3,
                                 .topk = 1,
                                 .group = 4,
                                 .capacity = 2,
                                 .overflow = Overflow::probability});
  CHECK(list_of<std::int32_t>(routed.chosen) == std::vector<std::int32_t>{~0, 0, ~0, 0});
  CHECK(list_of<std::int32_t>(routed.slot) == std::vector<std::int32_t>{-1, 0, -1, 1});
}

TEST_CASE("no expert takes more than its capacity, and none is left idle while others wait") {
  for (const Overflow overflow : all_overflows) {
    const Sizes sizes{
        .tokens = 64, .experts = 5, .topk = 2, .group = 16, .capacity = 7, .overflow = overflow};
    Values logits = random_logits(sizes);
    Routed routed = route(logits, sizes);
    const auto chosen = list_of<std::int32_t>(routed.chosen);
    const auto choices = list_of<std::int32_t>(routed.choices);
    for (std::size_t group = 0; group < 4; ++group) {
      for (std::int32_t e = 0; e < 5; ++e) {
        const auto first = chosen.begin() + static_cast<std::ptrdiff_t>(group * 32);
        const auto wanted = choices[group * 5 + static_cast<std::size_t>(e)];
        CHECK(std::count(first, first + 32, e) == std::min(wanted, 7));
        CHECK(std::count(first, first + 32, e) + std::count(first, first + 32, ~e) == wanted);
      }
    }
    std::vector<std::int32_t> slots = list_of<std::int32_t>(routed.slot);
    std::erase(slots, -1);
    std::ranges::sort(slots);
    std::vector<std::int32_t> all(slots.size());
    std::iota(all.begin(), all.end(), 0);
    CHECK(slots == all);
    const auto counts = list_of<std::int64_t>(routed.counts);
    CHECK(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == std::ssize(all));
  }
}

TEST_CASE("slots in chunks: of each expert the same share in each") {
  Values logits = matrix({1, 0, 0,  // expert 0 has five rows, 1 two, 2 none
                          1, 0, 0,  //
                          0, 1, 0,  //
                          1, 0, 0,  //
                          1, 0, 0,  //
                          0, 1, 0,  //
                          1, 0, 0},
                         3);
  Sizes sizes{.tokens = 7, .experts = 3, .topk = 1, .group = 7, .chunks = 2};
  Routed routed = route(logits, sizes);
  CHECK(list_of<std::int32_t>(routed.slot) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 6, 5});
  sizes.chunks = 3;
  Routed three = route(logits, sizes);
  CHECK(list_of<std::int32_t>(three.slot) == std::vector<std::int32_t>{0, 1, 3, 2, 4, 6, 5});
  sizes.chunks = 9;  // more than rows: the first chunk has none
  Routed more = route(logits, sizes);
  CHECK(list_of<std::int32_t>(more.slot) == std::vector<std::int32_t>{0, 1, 2, 3, 4, 6, 5});
}

TEST_CASE("chunks hold all slots once, chunk after chunk and in each expert after expert") {
  const Sizes sizes{.tokens = 96,
                    .experts = 5,
                    .topk = 2,
                    .group = 48,
                    .capacity = 17,
                    .first = 16,
                    .count = 64,
                    .chunks = 3};
  Values logits = random_logits(sizes);
  Routed routed = route(logits, sizes);
  const auto chosen = list_of<std::int32_t>(routed.chosen);
  const auto slots = list_of<std::int32_t>(routed.slot);
  const auto counts = list_of<std::int64_t>(routed.counts);
  std::int64_t slot = 0;
  for (std::int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
    for (std::int32_t e = 0; e < 5; ++e) {
      const std::int64_t count = counts[static_cast<std::size_t>(e)];
      std::int64_t row = 0;
      for (std::size_t i = 32; i < 160; ++i) {
        if (chosen[i] != e) continue;
        const bool within = row >= count * chunk / 3 && row < count * (chunk + 1) / 3;
        if (within) CHECK(slots[i] == slot++);
        ++row;
      }
      CHECK(row == count);
    }
  }
  CHECK(slot == std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

TEST_CASE("tokens of gathered ranks are found where they lie") {
  // Two sequences of eight tokens; of each, rank 0 has tokens 0, 1, 6, 7 and rank 1 the others.
  const RowOrder order{{8, 2, true}, 2};
  std::vector<std::int64_t> tokens;
  for (std::int64_t row = 0; row < 16; ++row) {
    tokens.push_back(order.token_of(row));
    CHECK(order.row_of(tokens.back()) == row);
  }
  CHECK(tokens == std::vector<std::int64_t>{0, 1, 6, 7, 8, 9, 14, 15, 2, 3, 4, 5, 10, 11, 12, 13});
  const RowOrder halves{{4, 2}, 1};
  CHECK(halves.token_of(3) == 3);
  const RowOrder thirds{{6, 3}, 2};
  CHECK(thirds.token_of(2) == 6);
  CHECK(thirds.row_of(6) == 2);
}

TEST_CASE("a router routes gathered rows as in the order of the data") {
  for (const bool zigzag : {false, true}) {
    for (const Overflow overflow : all_overflows) {
      Sizes sizes{.tokens = 48, .experts = 4, .topk = 2, .group = 12, .capacity = 7};
      sizes.overflow = overflow;
      Values logits = random_logits(sizes);
      Routed data = route(logits, sizes);
      sizes.order = {{24, 3, zigzag}, 2};
      std::vector<std::int64_t> counts(4);
      Values gathered = in_order(logits, sizes.experts, sizes.order);
      for (sizes.first = 0, sizes.count = 16; sizes.first < 48; sizes.first += 16) {
        Routed rows = route(gathered, sizes);
        const auto chosen = list_of<std::int32_t>(rows.chosen);
        const auto expected = list_of<std::int32_t>(data.chosen);
        for (std::size_t i = 0; i < chosen.size(); ++i) {
          const auto token = sizes.order.token_of(static_cast<std::int64_t>(i / 2));
          CHECK(chosen[i] == expected[static_cast<std::size_t>(token) * 2 + i % 2]);
        }
        CHECK(rows.choices == data.choices);
        CHECK(rows.weight == in_order(data.weight, 2, sizes.order));
        const auto own = list_of<std::int64_t>(rows.counts);
        const auto slots = list_of<std::int32_t>(rows.slot);
        const auto begin = slots.begin() + sizes.first * 2;
        CHECK(*std::max_element(begin, begin + 32) + 1 ==
              std::accumulate(own.begin(), own.end(), std::int64_t{0}));
        for (std::size_t e = 0; e < 4; ++e) counts[e] += own[e];
      }
      CHECK(counts == list_of<std::int64_t>(data.counts));
    }
  }
}

TEST_CASE("a router's gradient agrees with finite differences") {
  for (const RouterChoice& choice : all_choices()) {
    for (const std::int64_t capacity : {0, 3}) {
      const Sizes sizes{
          .tokens = 8, .experts = 5, .topk = 3, .group = 8, .capacity = capacity, .choice = choice};
      Values logits = random_logits(sizes);
      Values d_weight = Values::random({8, 3}, DType::f32, 9);
      Routed routed = route(logits, sizes);
      Values d_logits({8, 5}, DType::f32);
      const Host host(tested_kernels());
      router_backward(host.context(), {.logits = logits.tensor(),
                                       .chosen = routed.chosen.tensor(),
                                       .choice = choice,
                                       .d_weight = d_weight.tensor(),
                                       .d_logits = d_logits.tensor()});
      const auto loss = [&] { return weighted_sum(route(logits, sizes).weight, d_weight); };
      CHECK(slope_error(logits, d_logits, 1e-3F, loss) < 2e-3);
    }
  }
}

TEST_CASE("sigmoid scores: weights of the chosen add up to the scaling, one alone is its score") {
  Values logits = matrix({0, 2, -1, 1}, 4);
  RouterChoice choice{.sigmoid = true, .weighting = chosen, .scaling = 3};
  const auto score = [](double x) { return 1 / (1 + std::exp(-x)); };
  Routed two = route(logits, {.tokens = 1, .experts = 4, .topk = 2, .group = 1, .choice = choice});
  CHECK(list_of<std::int32_t>(two.chosen) == std::vector<std::int32_t>{1, 3});
  CHECK(two.weight.at(0) == Approx(3 * score(2) / (score(2) + score(1))));
  CHECK(two.weight.at(0) + two.weight.at(1) == Approx(3));
  choice.weighting = all;
  Routed one = route(logits, {.tokens = 1, .experts = 4, .topk = 1, .group = 1, .choice = choice});
  CHECK(one.weight.at(0) == Approx(3 * score(2)));
}

TEST_CASE("a bias changes who is chosen, but not the weights") {
  Values logits = matrix({0, 2, -1, 1}, 4);
  Values bias({4}, DType::f32);
  bias.set(2, 1.0F);  // -1 has the score 0.27, so 1.27
  const Sizes sizes{.tokens = 1,
                    .experts = 4,
                    .topk = 2,
                    .group = 1,
                    .choice = {.sigmoid = true, .weighting = chosen}};
  Routed routed = route(logits, sizes, bias.tensor());
  CHECK(list_of<std::int32_t>(routed.chosen) == std::vector<std::int32_t>{2, 1});
  const auto score = [](double x) { return 1 / (1 + std::exp(-x)); };
  CHECK(routed.weight.at(0) == Approx(score(-1) / (score(-1) + score(2))));
}

TEST_CASE("a token chooses in the groups of experts with the best sums") {
  // Groups of two: sums of both scores for four experts in two groups, of the best for two.
  Values logits = matrix({3, -9, 1, 1, -1, -1, 2, -9}, 8);
  const auto chosen = [&](std::int64_t topk, std::int64_t groups,
                          RouterChoice choice = {.sigmoid = true}) {
    choice.groups = 4;
    choice.group_topk = groups;
    Routed routed =
        route(logits, {.tokens = 1, .experts = 8, .topk = topk, .group = 1, .choice = choice});
    return list_of<std::int32_t>(routed.chosen);
  };
  CHECK(chosen(2, 1) == std::vector<std::int32_t>{2, 3});
  CHECK(chosen(4, 2) == std::vector<std::int32_t>{0, 2, 3, 1});
  CHECK(chosen(2, 2) == std::vector<std::int32_t>{0, 6});
  CHECK(chosen(4, 4) == std::vector<std::int32_t>{0, 6, 2, 3});
  // Softmax adds up exp(logit), or the logits.
  CHECK(chosen(2, 1, {}) == std::vector<std::int32_t>{0, 1});
  CHECK(chosen(4, 2, {}) == std::vector<std::int32_t>{0, 6, 1, 7});
  CHECK(chosen(2, 1, {.sums_logits = true}) == std::vector<std::int32_t>{2, 3});
  CHECK(chosen(4, 2, {.sums_logits = true}) == std::vector<std::int32_t>{2, 3, 4, 5});
}

TEST_CASE("the gradient of the router's losses agrees with their sums") {
  const RouterChoice choice =
      GENERATE(RouterChoice{}, RouterChoice{.sigmoid = true}, RouterChoice{.rounds = true},
               RouterChoice{.sigmoid = true, .free_counts = true, .groups = 2, .group_topk = 1});
  const RowOrder order = GENERATE(RowOrder{}, RowOrder{{12, 2, true}, 1});
  Sizes sizes{.tokens = 12, .experts = 4, .topk = 2, .group = 6, .capacity = 4, .choice = choice};
  sizes.order = order;
  Values logits = random_logits(sizes);
  Routed routed = route(logits, sizes);
  const Host host(tested_kernels());
  StepState state;
  state.token_factor = 0.5F;
  state.loss_scale = 4;
  Values d_logits({12, 4}, DType::f32);
  for (std::int64_t first : {0, 8}) {  // the rows of two ranks
    const std::int64_t end = first == 0 ? 8 : 12;
    router_losses(host.context(), {.logits = logits.tensor().slice(first, end),
                                   .chosen = routed.chosen.tensor().slice(first, end),
                                   .order = order,
                                   .first = first,
                                   .group = 6,
                                   .choice = choice,
                                   .choices = routed.choices.tensor(),
                                   .balance_factor = 0.3F,
                                   .z_factor = 0.1F,
                                   .d_logits = d_logits.tensor().slice(first, end),
                                   .state = &state});
  }
  const auto loss = [&] {
    Values sums({router_sums + 4}, DType::f32);
    router_statistics(host.context(), {.logits = logits.tensor(),
                                       .chosen = routed.chosen.tensor(),
                                       .order = order,
                                       .group = 6,
                                       .choice = choice,
                                       .choices = routed.choices.tensor(),
                                       .sums = sums.tensor()});
    return 2 * (0.3 * sums.at(0) + 0.1 * sums.at(1));
  };
  CHECK(slope_error(logits, d_logits, 1e-2F, loss) < 2e-3);
}

TEST_CASE("what a router adds up") {
  Values even = matrix({0, 0, 0, 0, 0, 0}, 3);
  Routed routed = route(even, {.tokens = 2, .experts = 3, .topk = 1, .group = 2, .capacity = 1});
  Values sums({router_sums + 3}, DType::f32);
  const Host host(tested_kernels());
  router_statistics(host.context(), {.logits = even.tensor(),
                                     .chosen = routed.chosen.tensor(),
                                     .group = 2,
                                     .choices = routed.choices.tensor(),
                                     .sums = sums.tensor()});
  const auto sum = [&](RouterSum one) { return sums.at(static_cast<int>(one)); };
  CHECK(sum(RouterSum::balance) == Approx(2));  // of two tokens; even probabilities cost 1
  CHECK(sum(RouterSum::z_loss) == Approx(2 * std::pow(std::log(3.0), 2)));
  CHECK(sum(RouterSum::entropy) == Approx(2 * std::log(3.0)));
  CHECK(sum(RouterSum::dropped) == 1);
  CHECK(sums.at(router_sums) == 2);  // both want the first expert
}

TEST_CASE("a round chooses a full expert again, and leaves out those that the token has") {
  Values logits = matrix({3, 1, 0,  //
                          3, 1, 0,  //
                          3, 1, 0},
                         3);
  const Sizes sizes{.tokens = 3,
                    .experts = 3,
                    .topk = 2,
                    .group = 3,
                    .capacity = 2,
                    .choice = {.weighting = kept, .rounds = true}};
  Routed routed = route(logits, sizes);
  CHECK(list_of<std::int32_t>(routed.chosen) == std::vector<std::int32_t>{0, 1, 0, 1, ~0, ~0});
  CHECK(list_of<std::int32_t>(routed.choices) == std::vector<std::int32_t>{3, 0, 0, 1, 2, 0});
  CHECK(routed.weight.at(0) / routed.weight.at(1) == Approx(std::exp(2.0)));
  CHECK(routed.weight.at(4) == 0);
  CHECK(routed.weight.at(5) == 0);
  CHECK(list_of<std::int64_t>(routed.counts) == std::vector<std::int64_t>{2, 2, 0});
}

TEST_CASE("where no probability is left in a round, expert 0 is chosen once more") {
  Values logits = matrix({200, 0, 0,  //
                          -300, 0, -400},
                         3);
  const Sizes sizes{.tokens = 2,
                    .experts = 3,
                    .topk = 2,
                    .group = 2,
                    .choice = {.weighting = kept, .rounds = true}};
  Routed routed = route(logits, sizes);
  CHECK(list_of<std::int32_t>(routed.chosen) == std::vector<std::int32_t>{0, 0, 1, 0});
  CHECK(routed.weight.at(0) == Approx(1));
  CHECK(routed.weight.at(1) == 0);
  CHECK(routed.weight.at(3) == 0);
  CHECK(list_of<std::int64_t>(routed.counts) == std::vector<std::int64_t>{3, 1, 0});
  CHECK(list_of<std::int32_t>(routed.slot) == std::vector<std::int32_t>{0, 1, 3, 2});
}

TEST_CASE("experts that would be chosen without a bias and groups are counted as well") {
  Values logits = matrix({0, 2, -1, 1}, 4);
  Values bias({4}, DType::f32);
  bias.set(2, 1.0F);
  const Sizes sizes{.tokens = 1,
                    .experts = 4,
                    .topk = 2,
                    .group = 1,
                    .choice = {.sigmoid = true, .free_counts = true}};
  Routed routed = route(logits, sizes, bias.tensor());
  CHECK(list_of<std::int32_t>(routed.choices) == std::vector<std::int32_t>{0, 1, 1, 0,  //
                                                                           0, 1, 0, 1});
}

TEST_CASE("places may be shared by other groups than balance is counted over") {
  Values logits = matrix({1, 0, 1, 0, 1, 0, 1, 0}, 2);  // four tokens that want expert 0
  Sizes sizes{.tokens = 4, .experts = 2, .topk = 1, .group = 2, .capacity = 3, .place_group = 4};
  CHECK(list_of<std::int32_t>(route(logits, sizes).chosen) ==
        std::vector<std::int32_t>{0, 0, 0, ~0});
  sizes = {.tokens = 4, .experts = 2, .topk = 1, .group = 4, .capacity = 1, .place_group = 2};
  Routed routed = route(logits, sizes);
  CHECK(list_of<std::int32_t>(routed.chosen) == std::vector<std::int32_t>{0, ~0, 0, ~0});
  CHECK(list_of<std::int32_t>(routed.choices) == std::vector<std::int32_t>{4, 0});
}

TEST_CASE("token after token, an expert that is full at a second choice has no place for a first") {
  Values logits = matrix({2, 1, 0,  //
                          0, 2, 1},
                         3);
  Sizes sizes{.tokens = 2, .experts = 3, .topk = 2, .group = 2, .capacity = 1};
  CHECK(list_of<std::int32_t>(route(logits, sizes).chosen) ==
        std::vector<std::int32_t>{0, ~1, 1, 2});
  sizes.overflow = Overflow::token;
  CHECK(list_of<std::int32_t>(route(logits, sizes).chosen) ==
        std::vector<std::int32_t>{0, 1, ~1, 2});
}

TEST_CASE("kernels route, weigh and count as the plain ones do") {
  StepState state;
  state.token_factor = 1.0F / 48;
  std::vector<std::uint8_t> marks;  // a group has none that is real
  for (int i = 0; i < 48; ++i) marks.push_back(i % 5 != 2 && i / 12 != 2 ? 1 : 0);
  const bool padded = GENERATE(false, true);
  if (!padded) marks.clear();
  for (RouterChoice choice : all_choices()) {
    for (const Overflow overflow : all_overflows) {
      if (choice.rounds && overflow != Overflow::position) continue;
      choice.free_counts = !choice.rounds;
      const Sizes sizes{.tokens = 48,
                        .experts = 6,
                        .topk = 3,
                        .group = 12,
                        .capacity = 13,
                        .overflow = overflow,
                        .choice = choice,
                        .order = {{24, 2, true}, 2},
                        .place_group = 24,
                        .real = marks};
      Values logits = random_logits(sizes);
      Values d_weight = Values::random({48, 3}, DType::f32, 9);
      Values d_logits[2] = {Values({48, 6}, DType::f32), Values({48, 6}, DType::f32)};
      Values sums[2] = {Values({router_sums + 6}, DType::f32),
                        Values({router_sums + 6}, DType::f32)};
      Routed routed[2] = {route(logits, sizes), route(logits, sizes, {}, plain_kernels)};
      for (std::size_t i = 0; i < 2; ++i) {
        const Host host(i == 0 ? tested_kernels() : plain_kernels);
        router_backward(host.context(), {.logits = logits.tensor(),
                                         .chosen = routed[i].chosen.tensor(),
                                         .choice = choice,
                                         .d_weight = d_weight.tensor(),
                                         .d_logits = d_logits[i].tensor()});
        const RouterLosses losses{.logits = logits.tensor(),
                                  .chosen = routed[i].chosen.tensor(),
                                  .real = sizes.marks(),
                                  .order = sizes.order,
                                  .group = 12,
                                  .choice = choice,
                                  .choices = routed[i].choices.tensor(),
                                  .balance_factor = 0.5F,
                                  .z_factor = 0.1F,
                                  .d_logits = d_logits[i].tensor(),
                                  .state = &state,
                                  .sums = sums[i].tensor()};
        router_losses(host.context(), losses);
        router_statistics(host.context(), losses);
      }
      CHECK(routed[0].chosen == routed[1].chosen);
      CHECK(routed[0].slot == routed[1].slot);
      CHECK(routed[0].choices == routed[1].choices);
      CHECK(routed[0].counts == routed[1].counts);
      CHECK(difference(routed[0].weight, routed[1].weight) < 1e-6);
      CHECK(difference(d_logits[0], d_logits[1]) < 2e-6);
      CHECK(difference(sums[0], sums[1]) < 2e-6);
    }
  }
}

namespace {

/// The results of a router for tokens.
struct Whole {
  Routed routed;
  Values d_logits, sums;
  Whole(Values& logits, Values& d_weight, const Sizes& s)
      : routed(route(logits, s)),
        d_logits(logits.tensor().shape, DType::f32),
        sums({router_sums + s.experts}, DType::f32) {
    StepState state;
    const Host host(tested_kernels());
    router_backward(host.context(), {.logits = logits.tensor(),
                                     .chosen = routed.chosen.tensor(),
                                     .choice = s.choice,
                                     .d_weight = d_weight.tensor(),
                                     .d_logits = d_logits.tensor()});
    const RouterLosses losses{.logits = logits.tensor(),
                              .chosen = routed.chosen.tensor(),
                              .real = s.marks(),
                              .order = s.order,
                              .group = s.group,
                              .choice = s.choice,
                              .choices = routed.choices.tensor(),
                              .balance_factor = 0.5F,
                              .z_factor = 0.1F,
                              .d_logits = d_logits.tensor(),
                              .state = &state,
                              .sums = sums.tensor()};
    router_losses(host.context(), losses);
    router_statistics(host.context(), losses);
  }
};

/// The rows of tokens [begin, end) that are real.
Values real_rows(const Values& values, std::int64_t columns, const std::vector<std::uint8_t>& real,
                 std::int64_t begin, std::int64_t end) {
  std::vector<float> kept;
  for (std::int64_t i = begin * columns; i < end * columns; ++i) {
    if (real[static_cast<std::size_t>(i / columns)] != 0) {
      kept.push_back(static_cast<float>(values.at(i)));
    }
  }
  return matrix(kept, columns);
}

std::vector<std::int32_t> real_choices(const Values& chosen, std::int64_t topk,
                                       const std::vector<std::uint8_t>& real, std::int64_t begin,
                                       std::int64_t end) {
  const std::vector<std::int32_t> all = list_of<std::int32_t>(chosen);
  std::vector<std::int32_t> kept;
  for (std::int64_t i = begin * topk; i < end * topk; ++i) {
    if (real[static_cast<std::size_t>(i / topk)] != 0) {
      kept.push_back(all[static_cast<std::size_t>(i)]);
    }
  }
  return kept;
}

void check_same(const Values& found, const Values& expected, double most = 1e-6) {
  REQUIRE(found.numel() == expected.numel());
  for (std::int64_t i = 0; i < found.numel(); ++i) {
    CHECK(std::abs(found.at(i) - expected.at(i)) <= most);
  }
}

}  // namespace

TEST_CASE("a group with padding is routed as its real tokens alone, which have fewer places") {
  const std::vector<std::uint8_t> real{1, 0, 1, 1, 1, 0, 1, 1, 0, 0, 1, 1,   // 8 of them
                                       1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};  // 3
  for (const RouterChoice& choice : all_choices()) {
    for (const Overflow overflow : all_overflows) {
      if (choice.rounds && overflow != Overflow::position) continue;
      Sizes padded{.tokens = 24, .experts = 4, .topk = 2, .group = 12};
      padded.overflow = overflow;
      padded.choice = choice;
      padded.factor = 1.1;
      Values logits = random_logits(padded);
      Values d_weight = Values::random({24, 2}, DType::f32, 9);
      Sizes marked = padded;
      marked.real = real;
      Whole all(logits, d_weight, marked);
      Values sums({router_sums + 4}, DType::f32);
      for (const std::int64_t group : {0, 1}) {
        const std::int64_t begin = group * 12;
        const auto alone = [&](const Values& values, std::int64_t columns) {
          return real_rows(values, columns, real, begin, begin + 12);
        };
        Values local_logits = alone(logits, 4);
        Values local_d_weight = alone(d_weight, 2);
        Sizes own = padded;
        own.tokens = own.group = local_logits.numel() / 4;
        Whole one(local_logits, local_d_weight, own);
        CHECK(real_choices(all.routed.chosen, 2, real, begin, begin + 12) ==
              list_of<std::int32_t>(one.routed.chosen));
        check_same(alone(all.routed.weight, 2), one.routed.weight);
        check_same(alone(all.d_logits, 4), one.d_logits);
        const std::int64_t counted = choice.counted(2) * 4;
        const auto choices = list_of<std::int32_t>(all.routed.choices);
        CHECK(std::vector(choices.begin() + group * counted,
                          choices.begin() + (group + 1) * counted) ==
              list_of<std::int32_t>(one.routed.choices));
        for (std::int64_t i = 0; i < sums.numel(); ++i) {
          sums.set(i, static_cast<float>(sums.at(i) + one.sums.at(i)));
        }
      }
      check_same(all.sums, sums, 1e-4);
      const auto chosen = list_of<std::int32_t>(all.routed.chosen);
      const auto slot = list_of<std::int32_t>(all.routed.slot);
      for (std::int64_t i = 0; i < 48; ++i) {
        if (real[static_cast<std::size_t>(i / 2)] != 0) continue;
        CHECK(chosen[static_cast<std::size_t>(i)] == ~0);
        CHECK(slot[static_cast<std::size_t>(i)] == -1);
        CHECK(all.routed.weight.at(i) == 0);
        CHECK(all.d_logits.at(2 * i) == 0);
        CHECK(all.d_logits.at(2 * i + 1) == 0);
      }
    }
  }
}

TEST_CASE("a router's front door names what does not fit") {
  const Host host(tested_kernels());
  Values logits({4, 3}, DType::f32);
  Routed routed({.tokens = 4, .experts = 3, .topk = 2, .group = 2});
  RouterForward args{.logits = logits.tensor(),
                     .group = 3,
                     .chosen = routed.chosen.tensor(),
                     .weight = routed.weight.tensor(),
                     .slot = routed.slot.tensor(),
                     .choices = routed.choices.tensor(),
                     .counts = routed.counts.tensor()};
  CHECK(starts_with(failure_of([&] { router_forward(host.context(), args); }), "[router] choices"));
  args.group = 2;
  args.capacity = {.group = 3, .factor = 1};
  CHECK(starts_with(failure_of([&] { router_forward(host.context(), args); }),
                    "[router] the groups that share places"));
  args.capacity = {};
  args.real = routed.counts.tensor();
  CHECK(starts_with(failure_of([&] { router_forward(host.context(), args); }), "[router] real"));
  args.real = {};
  args.counts = routed.slot.tensor();
  CHECK(starts_with(failure_of([&] { router_forward(host.context(), args); }), "[router] counts"));
}

}  // namespace router_test
