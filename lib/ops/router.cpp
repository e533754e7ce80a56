#include "ops/router.h"

#include "ops/check.h"

namespace trainctl {

namespace {

bool is_matrix(const Tensor& x, std::int64_t rows, std::int64_t columns, DType dtype) {
  return is_matrix(x, dtype) && x.shape == Shape{rows, columns};
}

void check_logits(std::string_view op, const Tensor& logits) {
  check(is_matrix(logits, DType::f32), op, "logits must be [tokens, experts] fp32",
        {{"logits", logits}});
}

void check_chosen(std::string_view op, const Tensor& logits, const Tensor& chosen) {
  check(is_matrix(chosen, DType::i32) && chosen.shape[0] == logits.shape[0] &&
            chosen.shape[1] <= logits.shape[1],
        op, "chosen must be [tokens, at most experts] i32",
        {{"logits", logits}, {"chosen", chosen}});
}

/// `tokens` is the number of tokens in all groups.
void check_groups(std::string_view op, const Tensor& choices, std::int64_t group,
                  std::int64_t tokens, const Tensor& logits, std::int64_t counted) {
  check(group > 0 && tokens % group == 0 &&
            is_matrix(choices, tokens / group * counted, logits.shape[1], DType::i32),
        op, "choices must be [tokens / group x counted, experts] i32",
        {{"logits", logits}, {"choices", choices}});
}

void check_choice(std::string_view op, const RouterForward& args) {
  const RouterChoice& choice = args.choice;
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const bool sigmoid = choice.sigmoid;
  check(choice.groups > 0 && experts % choice.groups == 0 && choice.group_topk > 0 &&
            choice.group_topk <= choice.groups && topk % choice.group_topk == 0 &&
            topk <= choice.group_topk * (experts / choice.groups) && (args.bias.empty() || sigmoid),
        op, "groups of experts must divide them and hold the chosen; a bias needs sigmoid",
        {{"logits", args.logits}, {"chosen", args.chosen}});
  check(!choice.rounds || (!sigmoid && choice.groups == 1 && !choice.free_counts &&
                           args.capacity.overflow == Overflow::position),
        op, "rounds need softmax, one group of experts and places by position",
        {{"logits", args.logits}});
  const RouterCapacity& capacity = args.capacity;
  check(capacity.factor == 0 || (capacity.factor > 0 && capacity.group > 0 &&
                                 args.logits.shape[0] % capacity.group == 0),
        op, "the groups that share places must divide the tokens", {{"logits", args.logits}});
}

/// `tokens` is the number of tokens in all groups.
void check_real(std::string_view op, const Tensor& real, std::int64_t tokens,
                const Tensor& logits) {
  check(real.empty() || is_vector(real, tokens, DType::u8), op,
        "real must be [tokens of all groups] u8", {{"logits", logits}, {"real", real}});
}

void check_order(std::string_view op, const RowOrder& order, std::int64_t rows,
                 const Tensor& logits) {
  const TokenPieces& tokens = order.tokens;
  const std::int64_t length = tokens.seq_length;
  const std::int64_t pieces = tokens.ranks * tokens.pieces();
  check(tokens.ranks == 1 || (tokens.ranks > 0 && length > 0 && length % pieces == 0 &&
                              order.sequences * length == rows),
        op, "order must be that of all rows, in equal pieces", {{"logits", logits}});
}

}  // namespace

void router_forward(const OpContext& context, const RouterForward& args) {
  constexpr std::string_view op = "router";
  check_logits(op, args.logits);
  check_chosen(op, args.logits, args.chosen);
  const std::int64_t tokens = args.logits.shape[0];
  const std::int64_t topk = args.chosen.shape[1];
  check_groups(op, args.choices, args.group, tokens, args.logits, args.choice.counted(topk));
  check_order(op, args.order, tokens, args.logits);
  check_real(op, args.real, tokens, args.logits);
  check(args.first >= 0 && args.count >= 0 && args.first + args.count <= tokens, op,
        "the rows from first on must be there", {{"logits", args.logits}});
  check(args.chunks > 0, op, "there must be a chunk", {{"slot", args.slot}});
  check(is_matrix(args.weight, tokens, topk, DType::f32) &&
            is_matrix(args.slot, tokens, topk, DType::i32),
        op, "weight must be fp32 and slot i32, as chosen",
        {{"chosen", args.chosen}, {"weight", args.weight}, {"slot", args.slot}});
  check(args.bias.empty() || is_vector(args.bias, args.logits.shape[1], DType::f32), op,
        "bias must be [experts] fp32", {{"logits", args.logits}, {"bias", args.bias}});
  check_choice(op, args);
  check(is_vector(args.counts, args.logits.shape[1], DType::i64), op,
        "counts must be [experts] i64", {{"logits", args.logits}, {"counts", args.counts}});
  dispatch(context, &Kernels::router_forward, args, "router_forward");
}

void router_backward(const OpContext& context, const RouterBackward& args) {
  constexpr std::string_view op = "router_backward";
  check_logits(op, args.logits);
  check_chosen(op, args.logits, args.chosen);
  check(is_matrix(args.d_weight, args.chosen.shape[0], args.chosen.shape[1], DType::f32), op,
        "d_weight must be fp32, as chosen", {{"chosen", args.chosen}, {"d_weight", args.d_weight}});
  check(is_like(args.d_logits, args.logits), op, "d_logits must be as logits",
        {{"logits", args.logits}, {"d_logits", args.d_logits}});
  dispatch(context, &Kernels::router_backward, args, "router_backward");
}

void router_losses(const OpContext& context, const RouterLosses& args) {
  constexpr std::string_view op = "router_losses";
  check_logits(op, args.logits);
  check_chosen(op, args.logits, args.chosen);
  const std::int64_t counted = args.choice.counted(args.chosen.shape[1]);
  check(is_matrix(args.choices, DType::i32) && args.choices.shape[1] == args.logits.shape[1] &&
            args.choices.shape[0] % counted == 0 && args.group > 0 && args.first >= 0 &&
            args.first + args.logits.shape[0] <= args.choices.shape[0] / counted * args.group,
        op, "choices must be [groups x counted, experts] i32 and cover the tokens",
        {{"logits", args.logits}, {"choices", args.choices}});
  const std::int64_t tokens = args.choices.shape[0] / counted * args.group;
  check_order(op, args.order, tokens, args.logits);
  check_real(op, args.real, tokens, args.logits);
  check(is_like(args.d_logits, args.logits), op, "d_logits must be as logits",
        {{"logits", args.logits}, {"d_logits", args.d_logits}});
  dispatch(context, &Kernels::router_losses, args, "router_losses");
}

void router_statistics(const OpContext& context, const RouterLosses& args) {
  constexpr std::string_view op = "router_statistics";
  check_logits(op, args.logits);
  check_chosen(op, args.logits, args.chosen);
  check_groups(op, args.choices, args.group, args.logits.shape[0], args.logits,
               args.choice.counted(args.chosen.shape[1]));
  check_order(op, args.order, args.logits.shape[0], args.logits);
  check_real(op, args.real, args.logits.shape[0], args.logits);
  check(is_vector(args.sums, router_sums + args.logits.shape[1], DType::f32), op,
        "sums must be [4 + experts] fp32", {{"logits", args.logits}, {"sums", args.sums}});
  dispatch(context, &Kernels::router_statistics, args, "router_statistics");
}

}  // namespace trainctl
