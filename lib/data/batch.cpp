#include "data/batch.h"

#include "base/round_up.h"

#include <algorithm>
#include <numeric>

namespace trainctl {

void resize(Batch& out, std::int64_t sequences, std::int64_t length) {
  const auto size = static_cast<std::size_t>(sequences * length);
  out.tokens.resize(size);
  out.labels.resize(size);
  out.loss_weight.resize(size);
  out.position.resize(size);
  out.document.resize(size);
  out.global_token.resize(size);
  out.real.assign(static_cast<std::size_t>(sequences), length);
  out.weight_sum = 0;
  out.length = length;
}

std::int64_t real_positions(const Batch& batch) {
  return std::accumulate(batch.real.begin(), batch.real.end(), std::int64_t{0});
}

std::int64_t counted_labels(const Batch& batch) {
  return std::ranges::count_if(batch.loss_weight, [](float weight) { return weight > 0; });
}

namespace {

/// The first `length` values of each row, one row after the other.
template <class T>
void keep_prefixes(std::vector<T>& values, std::int64_t sequences, std::int64_t length) {
  const auto row = static_cast<std::ptrdiff_t>(values.size()) / sequences;
  for (std::int64_t i = 1; i < sequences; ++i) {
    std::copy_n(values.begin() + i * row, length, values.begin() + i * length);
  }
  values.resize(static_cast<std::size_t>(sequences * length));
}

}  // namespace

void shorten(Batch& batch, std::int64_t step) {
  const std::int64_t sequences = std::ssize(batch.tokens) / batch.length;
  const std::int64_t least = std::max<std::int64_t>(1, *std::ranges::max_element(batch.real));
  const std::int64_t length = std::min(batch.length, round_up(least, step));
  if (length == batch.length) return;
  batch.length = length;
  keep_prefixes(batch.tokens, sequences, length);
  keep_prefixes(batch.labels, sequences, length);
  keep_prefixes(batch.loss_weight, sequences, length);
  keep_prefixes(batch.position, sequences, length);
  keep_prefixes(batch.document, sequences, length);
  keep_prefixes(batch.global_token, sequences, length);
}

namespace {

/// Writes one sequence as row `row`. Position and document numbers restart after an end token
/// and where the file says that a document starts.
void put_sample(const Dataset::Sample& sample, const BatchRule& rule, std::int64_t row,
                Batch& out) {
  const std::size_t length = sample.document.size();
  const std::size_t base = static_cast<std::size_t>(row) * length;
  std::int32_t document = 0;
  std::int32_t position = 0;
  out.real[static_cast<std::size_t>(row)] = sample.scored;
  for (std::size_t i = 0; i < length; ++i) {
    const std::int32_t token = sample.tokens[i];
    const bool starts_document = i > 0 && (sample.document[i] != sample.document[i - 1] ||
                                           sample.tokens[i - 1] == rule.eod_token);
    if (starts_document) {
      ++document;
      if (rule.reset_position_ids) position = 0;
    }
    const bool is_masked = static_cast<std::int64_t>(i) >= sample.scored ||
                           (rule.eod_mask_loss && token == rule.eod_token);
    out.tokens[base + i] = token;
    out.labels[base + i] = sample.tokens[i + 1];
    out.loss_weight[base + i] = is_masked ? 0.0F : 1.0F;
    out.position[base + i] = position++;
    out.document[base + i] = document;
    out.weight_sum += is_masked ? 0 : 1;
  }
}

void put_nothing(const BatchRule& rule, std::int64_t seq_length, std::int64_t row, Batch& out) {
  Dataset::Sample nothing;
  nothing.tokens.assign(static_cast<std::size_t>(seq_length + 1), 0);
  nothing.document.assign(static_cast<std::size_t>(seq_length), 0);
  BatchRule plain = rule;
  plain.eod_token = -1;  // padding is not an end token, whatever its number
  put_sample(nothing, plain, row, out);
}

/// `get(index, sample)` returns whether there is such a sample.
template <class Get>
void make_batch(const Dataset& data, const BatchRule& rule, std::int64_t first, Batch& out,
                Get get) {
  // Kept per thread, so that a step allocates nothing.
  thread_local Dataset::Sample sample;
  const std::int64_t length = data.seq_length();
  resize(out, rule.sequences, length);
  for (std::int64_t row = 0; row < rule.sequences; ++row) {
    if (get(first + row, sample)) {
      put_sample(sample, rule, row, out);
    } else {
      put_nothing(rule, length, row, out);
    }
  }
  std::iota(out.global_token.begin(), out.global_token.end(), first * length);
  if (rule.length_step > 0) shorten(out, rule.length_step);
}

}  // namespace

void make_train_batch(const Dataset& data, const BatchRule& rule, std::int64_t first_sample,
                      Batch& out) {
  make_batch(data, rule, first_sample, out, [&](std::int64_t index, Dataset::Sample& sample) {
    data.train_sample(index, sample);
    return true;
  });
}

void make_window_batch(const Dataset& data, const BatchRule& rule, std::int64_t first_window,
                       Batch& out) {
  make_batch(data, rule, first_window, out, [&](std::int64_t index, Dataset::Sample& sample) {
    if (index >= data.windows()) return false;
    data.window(index, sample);
    return true;
  });
}

}  // namespace trainctl
