#include "ops/attention_merge.h"

#include <cmath>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

/// One head of one query.
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

template <class T>
void merge_all(const AttentionMerge& args) {
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
}

}  // namespace

void attention_merge_plain(const OpContext&, const AttentionMerge& args) {
  with_element_type(args.out.dtype, [&](auto element) { merge_all<decltype(element)>(args); });
}

}  // namespace trainctl
