#include <cmath>

#include "base/integers.h"
#include "ops/attention.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// Merges the results for one head of one query.
template <class T>
void merge(T* out, float& logsumexp, const T* other, float other_logsumexp, std::int64_t size) {
  if (std::isinf(other_logsumexp)) return;
  const float highest = std::max(logsumexp, other_logsumexp);
  const float own = std::exp(logsumexp - highest);
  const float added = std::exp(other_logsumexp - highest);
  const float sum = own + added;
  for (std::int64_t i = 0; i < size; ++i) {
    out[i] = from_float<T>((own * to_float(out[i]) + added * to_float(other[i])) / sum);
  }
  logsumexp = highest + std::log(sum);
}

}  // namespace

void attention_merge_plain(const OpContext&, const AttentionMerge& args) {
  with_element_type(args.out.dtype, [&]<class T>(T) {
    const AttentionShape& shape = args.shape;
    const TokenRuns queries = shape.queries();
    const auto merge_token = [&](std::int64_t sequence, std::int64_t run, std::int64_t i) {
      const std::int64_t row = queries.at(run).row + sequence * queries.stride + i;
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        const std::int64_t at = (row * shape.heads + head) * shape.head_dim;
        const std::int64_t statistic =
            (sequence * shape.heads + head) * shape.query_length + run * queries.length + i;
        merge(args.out.as<T>() + at, args.logsumexp.as<float>()[statistic], args.other.as<T>() + at,
              args.other_logsumexp.as<float>()[statistic], shape.head_dim);
      }
    };
    for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
      for (std::int64_t run = 0; run < queries.count(); ++run) {
        for (std::int64_t i = 0; i < queries.length; ++i) merge_token(sequence, run, i);
      }
    }
  });
}

namespace {

/// Calls body(head, index in logsumexp, index of the head's first element in out) for each head of
/// each query.
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

}  // namespace

void attention_sink_forward_plain(const OpContext&, const AttentionSinkArgs& args) {
  with_element_type(args.out.dtype, [&]<class T>(T) {
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
  });
}

void attention_sink_backward_plain(const OpContext&, const AttentionSinkArgs& args) {
  with_element_type(args.out.dtype, [&]<class T>(T) {
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
  });
}

namespace {

/// Whether element `i` of x belongs to a query that counts.
bool counts(const Largest& args, std::int64_t i) {
  if (args.real.empty()) return true;
  const TokenRuns queries = args.shape.queries();
  const std::int64_t query = i % args.shape.query_length;
  const std::int64_t sequence = i / args.shape.query_length / args.shape.heads;
  const std::int64_t row =
      queries.at(query / queries.length).row + sequence * queries.stride + query % queries.length;
  return args.real.as<std::uint8_t>()[row] != 0;
}

}  // namespace

void largest_plain(const OpContext&, const Largest& args) {
  auto* key = static_cast<std::uint32_t*>(args.key.data);
  const float* x = args.x.as<float>();
  for (std::int64_t i = 0; i < args.x.numel(); ++i) {
    if (counts(args, i)) *key = std::max(*key, ordered_key(x[i]));
  }
}

}  // namespace trainctl
