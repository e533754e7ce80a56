#include "ops/router.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

double log_sum_exp(const float* logits, std::int64_t experts) {
  double most = logits[0];
  for (std::int64_t e = 1; e < experts; ++e) most = std::max<double>(most, logits[e]);
  double sum = 0;
  for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e] - most);
  return most + std::log(sum);
}

std::int32_t expert_of(std::int32_t chosen) { return chosen < 0 ? ~chosen : chosen; }

/// The log-sum-exp that the weights of a token are normalised with.
double weight_norm(const float* logits, std::int64_t experts, const std::int32_t* chosen,
                   std::int64_t topk, bool pre_softmax) {
  if (pre_softmax) return log_sum_exp(logits, experts);
  const double most = logits[expert_of(chosen[0])];
  double sum = 0;
  for (std::int64_t j = 0; j < topk; ++j) sum += std::exp(logits[expert_of(chosen[j])] - most);
  return most + std::log(sum);
}

void choose(const float* logits, std::int64_t experts, std::int32_t* chosen, std::int64_t topk) {
  for (std::int64_t j = 0; j < topk; ++j) {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + j, e) != chosen + j) continue;
      if (best < 0 || logits[e] > logits[best]) best = e;
    }
    chosen[j] = best;
  }
}

/// One routing group, with what the kernel has of it.
struct RoutingGroup {
  std::int64_t tokens, topk, experts, capacity;
  std::int32_t* chosen;
  const float* weight;
  std::int32_t* slot;  // scratch here
  const std::int32_t* choices;
};

/// First choices before second ones, then earlier tokens. `taken` is scratch of each expert.
void drop_late(const RoutingGroup& g, std::int64_t* taken) {
  std::fill_n(taken, g.experts, 0);
  for (std::int64_t j = 0; j < g.topk; ++j) {
    for (std::int64_t t = 0; t < g.tokens; ++t) {
      std::int32_t& chosen = g.chosen[t * g.topk + j];
      if (++taken[chosen] > g.capacity) chosen = ~chosen;
    }
  }
}

/// The largest weights, of equal ones the earlier token. The choices of each expert are listed in
/// the memory of the slots.
void drop_light(const RoutingGroup& g, std::int64_t* end) {
  std::int64_t total = 0;
  for (std::int64_t e = 0; e < g.experts; ++e) {
    end[e] = total;
    total += g.choices[e];
  }
  for (std::int64_t i = 0; i < g.tokens * g.topk; ++i) {
    g.slot[end[g.chosen[i]]++] = static_cast<std::int32_t>(i);
  }
  for (std::int64_t e = 0; e < g.experts; ++e) {
    if (g.choices[e] <= g.capacity) continue;
    std::int32_t* last = g.slot + end[e];
    std::int32_t* first = last - g.choices[e];
    std::nth_element(first, first + g.capacity, last, [&](std::int32_t a, std::int32_t b) {
      return g.weight[a] != g.weight[b] ? g.weight[a] > g.weight[b] : a < b;
    });
    for (std::int32_t* late = first + g.capacity; late < last; ++late) {
      g.chosen[*late] = ~g.chosen[*late];
    }
  }
}

/// Rows expert after expert, in each in token order.
void number_rows(const RouterForward& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t count = args.chosen.numel();
  const std::int32_t* chosen = args.chosen.as<std::int32_t>();
  std::int64_t* counts = args.counts.as<std::int64_t>();
  std::fill_n(counts, experts, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    if (chosen[i] >= 0) ++counts[chosen[i]];
  }
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < experts; ++e) begin += std::exchange(counts[e], begin);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int32_t& slot = args.slot.as<std::int32_t>()[i];
    slot = chosen[i] >= 0 ? static_cast<std::int32_t>(counts[chosen[i]]++) : -1;
  }
  for (std::int64_t e = experts - 1; e > 0; --e) counts[e] -= counts[e - 1];
}

}  // namespace

void router_forward_plain(const OpContext&, const RouterForward& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  std::fill_n(args.choices.as<std::int32_t>(), args.choices.numel(), 0);
  for (std::int64_t t = 0; t < args.logits.shape[0]; ++t) {
    const float* logits = args.logits.as<float>() + t * experts;
    std::int32_t* chosen = args.chosen.as<std::int32_t>() + t * topk;
    std::int32_t* choices = args.choices.as<std::int32_t>() + t / args.group * experts;
    choose(logits, experts, chosen, topk);
    const double norm = weight_norm(logits, experts, chosen, topk, args.pre_softmax);
    for (std::int64_t j = 0; j < topk; ++j) {
      args.weight.as<float>()[t * topk + j] =
          static_cast<float>(std::exp(logits[chosen[j]] - norm));
      ++choices[chosen[j]];
    }
  }
  for (std::int64_t i = 0; args.capacity > 0 && i < args.choices.shape[0]; ++i) {
    const std::int64_t first = i * args.group * topk;
    const RoutingGroup group{args.group,
                             topk,
                             experts,
                             args.capacity,
                             args.chosen.as<std::int32_t>() + first,
                             args.weight.as<float>() + first,
                             args.slot.as<std::int32_t>() + first,
                             args.choices.as<std::int32_t>() + i * experts};
    std::int64_t* scratch = args.counts.as<std::int64_t>();
    args.by_probability ? drop_light(group, scratch) : drop_late(group, scratch);
  }
  number_rows(args);
}

void router_backward_plain(const OpContext&, const RouterBackward& args) {
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  for (std::int64_t t = 0; t < args.logits.shape[0]; ++t) {
    const float* logits = args.logits.as<float>() + t * experts;
    const std::int32_t* chosen = args.chosen.as<std::int32_t>() + t * topk;
    const float* d_weight = args.d_weight.as<float>() + t * topk;
    float* d_logits = args.d_logits.as<float>() + t * experts;
    const double norm = weight_norm(logits, experts, chosen, topk, args.pre_softmax);
    double mean = 0;
    for (std::int64_t j = 0; j < topk; ++j) {
      mean += std::exp(logits[expert_of(chosen[j])] - norm) * d_weight[j];
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      d_logits[e] =
          args.pre_softmax ? static_cast<float>(-std::exp(logits[e] - norm) * mean) : 0.0F;
    }
    for (std::int64_t j = 0; j < topk; ++j) {
      const std::int32_t e = expert_of(chosen[j]);
      const double weight = std::exp(logits[e] - norm);
      const double rest = args.pre_softmax ? 0 : mean;
      d_logits[e] += static_cast<float>(weight * (d_weight[j] - rest));
    }
  }
}

void router_losses_plain(const OpContext&, const RouterLosses& args) {
  const std::int64_t experts = args.logits.shape[1];
  const double scale = args.state->loss_scale * double{args.state->token_factor};
  const double even = static_cast<double>(experts) / static_cast<double>(args.topk * args.group);
  for (std::int64_t s = 0; s < args.logits.shape[0]; ++s) {
    const float* logits = args.logits.as<float>() + s * experts;
    const std::int32_t* choices =
        args.choices.as<std::int32_t>() + (args.first + s) / args.group * experts;
    const double norm = log_sum_exp(logits, experts);
    double mean = 0;  // of the choices, by probability
    for (std::int64_t e = 0; e < experts; ++e) mean += std::exp(logits[e] - norm) * choices[e];
    for (std::int64_t e = 0; e < experts; ++e) {
      const double p = std::exp(logits[e] - norm);
      const double balance = args.balance_factor * even * p * (choices[e] - mean);
      const double z = args.z_factor * 2 * norm * p;
      args.d_logits.as<float>()[s * experts + e] += static_cast<float>(scale * (balance + z));
    }
  }
}

void router_statistics_plain(const OpContext&, const RouterStatistics& args) {
  const std::int64_t tokens = args.logits.shape[0];
  const std::int64_t experts = args.logits.shape[1];
  const std::int64_t topk = args.chosen.shape[1];
  const double even = static_cast<double>(experts) / static_cast<double>(topk * args.group);
  double balance = 0;
  double z_loss = 0;
  double entropy = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const float* logits = args.logits.as<float>() + t * experts;
    const std::int32_t* choices = args.choices.as<std::int32_t>() + t / args.group * experts;
    const double norm = log_sum_exp(logits, experts);
    for (std::int64_t e = 0; e < experts; ++e) {
      const double p = std::exp(logits[e] - norm);
      balance += even * p * choices[e];
      if (p > 0) entropy -= p * (logits[e] - norm);
    }
    z_loss += norm * norm;
  }
  float* sums = args.sums.as<float>();
  const auto add = [&](RouterSum sum, double value) {
    sums[static_cast<int>(sum)] += static_cast<float>(value);
  };
  add(RouterSum::balance, balance);
  add(RouterSum::z_loss, z_loss);
  add(RouterSum::entropy, entropy);
  const std::int32_t* chosen = args.chosen.as<std::int32_t>();
  add(RouterSum::dropped,
      static_cast<double>(std::count_if(chosen, chosen + args.chosen.numel(),
                                        [](std::int32_t one) { return one < 0; })));
  for (std::int64_t i = 0; i < args.choices.numel(); ++i) {
    sums[router_sums + i % experts] += static_cast<float>(args.choices.as<std::int32_t>()[i]);
  }
}

}  // namespace trainctl
