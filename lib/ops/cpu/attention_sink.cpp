#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "ops/cpu/kernels.h"
#include "ops/elements.h"

namespace trainctl {

namespace {

/// The index of the first element for the query and head of element `statistic` of the logsumexp.
std::int64_t place_of(const AttentionShape& shape, const TokenRuns& queries,
                      std::int64_t statistic) {
  const std::int64_t query = statistic % shape.query_length;
  const std::int64_t head = statistic / shape.query_length % shape.heads;
  const std::int64_t sequence = statistic / shape.query_length / shape.heads;
  const std::int64_t row =
      queries.at(query / queries.length).row + sequence * queries.stride + query % queries.length;
  return (row * shape.heads + head) * shape.head_dim;
}

template <class T>
void forward(const AttentionSinkArgs& args) {
  const AttentionShape& shape = args.shape;
  const TokenRuns queries = shape.queries();
  const auto one = [&](std::int64_t statistic) {
    const float sink = args.sinks.as<float>()[statistic / shape.query_length % shape.heads];
    float& logsumexp = args.logsumexp.as<float>()[statistic];
    const float factor = 1 / (1 + std::exp(sink - logsumexp));
    T* out = args.out.as<T>() + place_of(shape, queries, statistic);
#pragma omp simd
    for (std::int64_t i = 0; i < shape.head_dim; ++i) {
      out[i] = from_float<T>(factor * to_float(out[i]));
    }
    const float highest = std::max(logsumexp, sink);
    logsumexp = highest + std::log(std::exp(logsumexp - highest) + std::exp(sink - highest));
  };
  parallel_for(args.logsumexp.numel(), row_grain(shape.head_dim),
               [&](std::int64_t first, std::int64_t last) {
                 for (std::int64_t at = first; at < last; ++at) one(at);
               });
}

/// One thread processes a whole head, so that its sum has a fixed order.
template <class T>
void backward(const AttentionSinkArgs& args) {
  const AttentionShape& shape = args.shape;
  const TokenRuns queries = shape.queries();
  const auto product = [&](std::int64_t place) {
    const T* out = args.out.as<T>() + place;
    const T* d_out = args.d_out.as<T>() + place;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < shape.head_dim; ++i) sum += to_float(out[i]) * to_float(d_out[i]);
    return sum;
  };
  const auto of_head = [&](std::int64_t head) {
    const float sink = args.sinks.as<float>()[head];
    double sum = 0;
    for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
      const std::int64_t first = (sequence * shape.heads + head) * shape.query_length;
      for (std::int64_t at = first; at < first + shape.query_length; ++at) {
        const float part = std::exp(sink - args.logsumexp.as<float>()[at]);
        sum += static_cast<double>(part * product(place_of(shape, queries, at)));
      }
    }
    args.d_sinks.as<float>()[head] -= static_cast<float>(sum);
  };
  parallel_for(shape.heads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t head = first; head < last; ++head) of_head(head);
  });
}

}  // namespace

void attention_sink_forward_cpu(const OpContext&, const AttentionSinkArgs& args) {
  with_element_type(args.out.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void attention_sink_backward_cpu(const OpContext&, const AttentionSinkArgs& args) {
  with_element_type(args.out.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
