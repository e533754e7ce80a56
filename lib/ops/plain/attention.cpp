#include <algorithm>
#include <cmath>
#include <limits>

#include "base/integers.h"
#include "base/philox.h"
#include "ops/elements.h"
#include "ops/plain/kernels.h"
#include "ops/plain/tell_accesses.h"

namespace trainctl {

namespace {

/// One token of a sequence: its row and its position in the sequence.
struct Place {
  std::int64_t row, position;
};

/// One query of one head: its elements, and the range of keys it sees.
template <class T>
struct Query {
  const T* q;                // [head_dim]
  std::int64_t row;          // row of its token
  std::int64_t offset;       // start of its elements in q, out, d_out and dq
  std::int64_t statistic;    // index of its element in logsumexp
  std::int64_t first, last;  // first and last position it sees
};

template <class T>
class Sequence {
 public:
  Sequence(const AttentionArgs& args, std::int64_t sequence)
      : args_(args),
        shape_(args.shape),
        queries_(args.shape.queries()),
        keys_(args.shape.keys()),
        sequence_(sequence) {}

  /// Query number `index` of the sequence; queries are numbered in the order of the runs.
  Query<T> query(std::int64_t index, std::int64_t head) const {
    const Place place = place_of(queries_, index);
    const std::int64_t offset = (place.row * shape_.heads + head) * shape_.head_dim;
    const std::int64_t first =
        args_.first_position.empty() ? 0 : args_.first_position.as<std::int32_t>()[place.row];
    const std::int64_t seen = shape_.limits.first_seen(place.position, first);
    return {args_.q.as<T>() + offset,
            place.row,
            offset,
            (sequence_ * shape_.heads + head) * shape_.query_length + index,
            seen,
            place.position};
  }

  Place key(std::int64_t index) const { return place_of(keys_, index); }

  /// Calls body(key) for each key that the query sees.
  template <class Body>
  void for_keys(const Query<T>& query, const Body& body) const {
    for (std::int64_t run = 0; run < keys_.count(); ++run) {
      const TokenRun& tokens = keys_.at(run);
      const std::int64_t begin = std::max<std::int64_t>(0, query.first - tokens.position);
      const std::int64_t end = std::min(keys_.length, query.last + 1 - tokens.position);
      const std::int64_t row = tokens.row + sequence_ * keys_.stride;
      for (std::int64_t i = begin; i < end; ++i) body(Place{row + i, tokens.position + i});
    }
  }

  std::int64_t key_offset(const Place& key, std::int64_t kv_head) const {
    return (key.row * shape_.kv_heads + kv_head) * shape_.head_dim;
  }

  std::int64_t kv_head(std::int64_t head) const { return head / (shape_.heads / shape_.kv_heads); }

  double dot(const T* a, const T* b) const {
    double sum = 0;
    for (std::int64_t i = 0; i < shape_.head_dim; ++i) {
      sum += static_cast<double>(to_float(a[i])) * to_float(b[i]);
    }
    return sum;
  }

  double uncapped_score(const Query<T>& query, const Place& key, std::int64_t head) const {
    return shape_.scale * dot(query.q, args_.k.as<T>() + key_offset(key, kv_head(head)));
  }
  double score(const Query<T>& query, const Place& key, std::int64_t head) const {
    const double score = uncapped_score(query, key, head);
    return shape_.cap > 0 ? shape_.cap * std::tanh(score / shape_.cap) : score;
  }
  /// The derivative of the cap, from the score after it.
  double slope(double score) const {
    const double part = shape_.cap > 0 ? score / shape_.cap : 0.0;
    return 1 - part * part;
  }

  /// The dropout factor of the probability of this query and key.
  double factor(const Query<T>& query, std::int64_t head, const Place& key) const {
    const AttentionDropout& dropout = args_.dropout;
    if (dropout.key.probability == 0.0F) return 1.0;
    const StepState& state = *dropout.key.state;
    const Philox random(state.seed, dropout_stream(state.step, dropout.key.site));
    const std::int64_t token = dropout.global_token.as<std::int64_t>()[query.row];
    const std::int64_t index =
        (token * dropout.heads_total + dropout.first_head + head) * dropout.seq_length +
        key.position;
    const bool keep = random.uniform(static_cast<std::uint64_t>(index)) >= dropout.key.probability;
    return keep ? 1.0F / (1.0F - dropout.key.probability) : 0.0F;
  }

 private:
  Place place_of(const TokenRuns& runs, std::int64_t index) const {
    const TokenRun& run = runs.at(index / runs.length);
    const std::int64_t i = index % runs.length;
    return {run.row + sequence_ * runs.stride + i, run.position + i};
  }

  const AttentionArgs& args_;
  const AttentionShape& shape_;
  const TokenRuns queries_, keys_;
  std::int64_t sequence_;
};

/// Raises the head's key to the key of the query's largest score.
template <class T>
void raise_largest(const AttentionArgs& args, const Sequence<T>& sequence, const Query<T>& query,
                   std::int64_t head) {
  auto& key_of_head = static_cast<std::uint32_t*>(args.largest.data)[head];
  sequence.for_keys(query, [&](const Place& key) {
    const double score = sequence.uncapped_score(query, key, head);
    key_of_head = std::max(key_of_head, ordered_key(static_cast<float>(score)));
  });
}

template <class T>
void forward_query(const AttentionArgs& args, const Sequence<T>& sequence, std::int64_t row,
                   std::int64_t head) {
  const Query<T> query = sequence.query(row, head);
  const bool counts = args.real.empty() || args.real.as<std::uint8_t>()[query.row] != 0;
  if (!args.largest.empty() && counts) raise_largest(args, sequence, query, head);
  double highest = -std::numeric_limits<double>::infinity();
  sequence.for_keys(query, [&](const Place& key) {
    highest = std::max(highest, sequence.score(query, key, head));
  });
  double sum = 0;
  double total[256] = {};
  sequence.for_keys(query, [&](const Place& key) {
    const double weight = std::exp(sequence.score(query, key, head) - highest);
    sum += weight;
    const double dropped = weight * sequence.factor(query, head, key);
    const T* v = args.v.as<T>() + sequence.key_offset(key, sequence.kv_head(head));
    for (std::int64_t i = 0; i < args.shape.head_dim; ++i) total[i] += dropped * to_float(v[i]);
  });
  const double scale = sum > 0 ? 1 / sum : 0;  // 0 if it sees no key
  for (std::int64_t i = 0; i < args.shape.head_dim; ++i) {
    args.out.as<T>()[query.offset + i] = from_float<T>(static_cast<float>(total[i] * scale));
  }
  args.logsumexp.as<float>()[query.statistic] = static_cast<float>(highest + std::log(sum));
}

/// A key's probability after dropout, and the gradient of its score before the cap.
struct Link {
  double dropped_probability, d_score;
};

template <class T>
Link link(const AttentionArgs& args, const Sequence<T>& sequence, const Query<T>& query,
          std::int64_t head, const Place& key) {
  const T* d_out = args.d_out.as<T>() + query.offset;
  const T* v = args.v.as<T>() + sequence.key_offset(key, sequence.kv_head(head));
  const double score = sequence.score(query, key, head);
  const double probability = std::exp(score - args.logsumexp.as<float>()[query.statistic]);
  const double factor = sequence.factor(query, head, key);
  const double mean = sequence.dot(d_out, args.out.as<T>() + query.offset);
  const double d_score = probability * (factor * sequence.dot(d_out, v) - mean);
  return {probability * factor, d_score * sequence.slope(score)};
}

template <class T>
void backward_key(const AttentionArgs& args, const Sequence<T>& sequence, const Place& key,
                  std::int64_t kv_head) {
  const AttentionShape& shape = args.shape;
  const std::int64_t group = shape.heads / shape.kv_heads;
  double dk[256] = {};
  double dv[256] = {};
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (std::int64_t row = 0; row < shape.query_length; ++row) {
      const Query<T> query = sequence.query(row, head);
      if (key.position < query.first || key.position > query.last) continue;
      const Link at = link(args, sequence, query, head, key);
      const T* d_out = args.d_out.as<T>() + query.offset;
      for (std::int64_t i = 0; i < shape.head_dim; ++i) {
        dk[i] += shape.scale * at.d_score * to_float(query.q[i]);
        dv[i] += at.dropped_probability * to_float(d_out[i]);
      }
    }
  }
  const std::int64_t offset = sequence.key_offset(key, kv_head);
  for (std::int64_t i = 0; i < shape.head_dim; ++i) {
    args.dk.as<T>()[offset + i] = from_float<T>(static_cast<float>(dk[i]));
    args.dv.as<T>()[offset + i] = from_float<T>(static_cast<float>(dv[i]));
  }
}

template <class T>
void backward_query(const AttentionArgs& args, const Sequence<T>& sequence, std::int64_t row,
                    std::int64_t head) {
  const AttentionShape& shape = args.shape;
  const Query<T> query = sequence.query(row, head);
  double dq[256] = {};
  sequence.for_keys(query, [&](const Place& key) {
    const Link at = link(args, sequence, query, head, key);
    const T* k = args.k.as<T>() + sequence.key_offset(key, sequence.kv_head(head));
    for (std::int64_t i = 0; i < shape.head_dim; ++i) {
      dq[i] += shape.scale * at.d_score * to_float(k[i]);
    }
  });
  for (std::int64_t i = 0; i < shape.head_dim; ++i) {
    args.dq.as<T>()[query.offset + i] = from_float<T>(static_cast<float>(dq[i]));
  }
}

void tell_mask_reads(const AttentionDropout& dropout) {
  if (dropout.key.probability == 0.0F) return;
  tell_read(*dropout.key.state);
  tell_reads({dropout.global_token});
}

}  // namespace

void attention_forward_plain(const OpContext&, const AttentionArgs& args) {
  tell_mask_reads(args.dropout);
  tell_reads({args.q, args.k, args.v, args.first_position, args.real});
  tell_writes({args.out, args.logsumexp, args.largest});
  with_element_type(args.q.dtype, [&]<class T>(T) {
    for (std::int64_t at = 0; at < args.shape.sequences; ++at) {
      const Sequence<T> sequence(args, at);
      for (std::int64_t head = 0; head < args.shape.heads; ++head) {
        for (std::int64_t row = 0; row < args.shape.query_length; ++row) {
          forward_query(args, sequence, row, head);
        }
      }
    }
  });
}

/// dk and dv are computed first, because dq may overwrite d_out.
void attention_backward_plain(const OpContext&, const AttentionArgs& args) {
  tell_mask_reads(args.dropout);
  tell_reads({args.q, args.k, args.v, args.first_position, args.out, args.logsumexp, args.d_out});
  tell_writes({args.dq, args.dk, args.dv});
  with_element_type(args.q.dtype, [&]<class T>(T) {
    const AttentionShape& shape = args.shape;
    for (std::int64_t at = 0; at < shape.sequences; ++at) {
      const Sequence<T> sequence(args, at);
      for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
        for (std::int64_t key = 0; key < shape.key_length; ++key) {
          backward_key(args, sequence, sequence.key(key), kv_head);
        }
      }
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        for (std::int64_t row = 0; row < shape.query_length; ++row) {
          backward_query(args, sequence, row, head);
        }
      }
    }
  });
}

}  // namespace trainctl
