#include "ops/attention_sink.h"

#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// body(head, number of the statistic, place of the head's first element) for each head of each
/// query.
template <class Body>
void for_heads(const AttentionShape& shape, const Body& body) {
  const TokenRuns queries = shape.queries();
  for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
    for (std::int64_t query = 0; query < shape.query_length; ++query) {
      const std::int64_t row = queries.at(query / queries.length).row + sequence * queries.stride +
                               query % queries.length;
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        body(head, (sequence * shape.heads + head) * shape.query_length + query,
             (row * shape.heads + head) * shape.head_dim);
      }
    }
  }
}

template <class T>
void forward(const AttentionSinkForward& args) {
  for_heads(args.shape, [&](std::int64_t head, std::int64_t statistic, std::int64_t place) {
    const double sink = args.sinks.as<float>()[head];
    float& logsumexp = args.logsumexp.as<float>()[statistic];
    const double factor = 1 / (1 + std::exp(sink - logsumexp));
    T* out = args.out.as<T>() + place;
    for (std::int64_t i = 0; i < args.shape.head_dim; ++i) {
      out[i] = from_float<T>(static_cast<float>(factor * to_float(out[i])));
    }
    const double highest = std::max<double>(logsumexp, sink);
    const double sum = std::exp(logsumexp - highest) + std::exp(sink - highest);
    logsumexp = static_cast<float>(highest + std::log(sum));
  });
}

template <class T>
void backward(const AttentionSinkBackward& args) {
  const AttentionShape& shape = args.shape;
  for_heads(shape, [&](std::int64_t head, std::int64_t statistic, std::int64_t place) {
    const double part = std::exp(double{args.sinks.as<float>()[head]} -
                                 double{args.logsumexp.as<float>()[statistic]});
    double product = 0;
    for (std::int64_t i = 0; i < shape.head_dim; ++i) {
      product += static_cast<double>(to_float(args.out.as<T>()[place + i])) *
                 to_float(args.d_out.as<T>()[place + i]);
    }
    args.d_sinks.as<float>()[head] -= static_cast<float>(part * product);
  });
}

}  // namespace

void attention_sink_forward_plain(const OpContext&, const AttentionSinkForward& args) {
  with_element_type(args.out.dtype, [&](auto element) { forward<decltype(element)>(args); });
}

void attention_sink_backward_plain(const OpContext&, const AttentionSinkBackward& args) {
  with_element_type(args.out.dtype, [&](auto element) { backward<decltype(element)>(args); });
}

}  // namespace trainctl
