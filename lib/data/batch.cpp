#include "data/batch.h"

#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/integers.h"
#include "base/text.h"

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

/// Keeps the first `length` values of each row, one row after the other.
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
    out.labels[base + i] = sample.labels[i];
    out.loss_weight[base + i] = is_masked ? 0.0F : 1.0F;
    out.position[base + i] = position++;
    out.document[base + i] = document;
    out.weight_sum += is_masked ? 0 : 1;
  }
}

void put_nothing(const BatchRule& rule, std::int64_t seq_length, std::int64_t row, Batch& out) {
  Dataset::Sample nothing;
  nothing.tokens.assign(static_cast<std::size_t>(seq_length + 1), 0);
  nothing.labels.assign(static_cast<std::size_t>(seq_length), 0);
  nothing.document.assign(static_cast<std::size_t>(seq_length), 0);
  BatchRule plain = rule;
  plain.eod_token = -1;  // padding is not an end token, whatever its number
  put_sample(nothing, plain, row, out);
}

/// Fills `out`; get(index, sample) reads a sample and returns whether it exists.
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

/// A ring of steps, which the thread fills as they become free. It has `ahead` + 1 entries, since
/// the engine holds one.
struct BatchLoader::Impl {
  Impl(const Dataset& dataset, const BatchRule& batch_rule, const Order& wanted_order)
      : data(dataset),
        rule(batch_rule),
        order(wanted_order),
        ring(static_cast<std::size_t>(order.ahead) + 1),
        next_sample(order.first_sample) {
    for (auto& step : ring) {
      step.resize(static_cast<std::size_t>(microbatches_of(0)));
      for (Batch& batch : step) resize(batch, rule.sequences, data.seq_length());
    }
    thread = std::jthread([this] { prepare_all(); });
  }

  ~Impl() {
    const std::scoped_lock lock(mutex);
    is_stopped = true;
    changed.notify_all();
  }

  std::vector<Batch>& step(std::int64_t number) {
    return ring[static_cast<std::size_t>(number) % ring.size()];
  }

  std::int64_t microbatches_of(std::int64_t number) const {
    for (const Order::Smaller& smaller : order.smaller) {
      if (number < smaller.steps) return smaller.microbatches;
      number -= smaller.steps;
    }
    return order.microbatches;
  }

  void prepare(std::int64_t number) {
    std::vector<Batch>& batches = step(number);
    const std::int64_t count = microbatches_of(number);
    batches.resize(static_cast<std::size_t>(count));
    std::int64_t sample = next_sample + order.data_rank * rule.sequences;
    for (Batch& batch : batches) {
      resize(batch, rule.sequences, data.seq_length());
      make_train_batch(data, rule, sample, batch);
      sample += order.data_parallel * rule.sequences;
    }
    next_sample += count * order.data_parallel * rule.sequences;
  }

  void prepare_all() {
    for (std::int64_t number = 0; number < order.steps; ++number) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return is_stopped || number - released <= order.ahead; });
        if (is_stopped) return;
      }
      try {
        prepare(number);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        failure = std::current_exception();
        return changed.notify_all();
      }
      const std::scoped_lock lock(mutex);
      ready = number + 1;
      changed.notify_all();
    }
  }

  const Dataset& data;
  const BatchRule rule;
  const Order order;
  std::vector<std::vector<Batch>> ring;
  std::int64_t next_sample;  // used by the thread alone
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t ready = 0;     // steps that have been prepared
  std::int64_t given = 0;     // steps that next_step has returned
  std::int64_t released = 0;  // steps whose memory is free again
  std::exception_ptr failure;
  bool is_stopped = false;
  std::jthread thread;  // last: joined before the other members are destroyed
};

BatchLoader::BatchLoader(const Dataset& data, BatchRule rule, Order order) {
  assert(order.ahead >= 0 && order.data_rank < order.data_parallel);
  assert(order.global_batch == order.microbatches * order.data_parallel * rule.sequences);
  impl_ = std::make_unique<Impl>(data, rule, order);
}

BatchLoader::~BatchLoader() = default;

const std::vector<Batch>& BatchLoader::next_step() {
  std::unique_lock lock(impl_->mutex);
  if (impl_->given == impl_->order.steps) {
    throw Error(ExitCode::internal,
                formatted("more steps are asked of the batch loader than the {} it was made for",
                          impl_->order.steps));
  }
  impl_->released = impl_->given;
  impl_->changed.notify_all();
  impl_->changed.wait(lock, [&] { return impl_->failure || impl_->ready > impl_->given; });
  if (impl_->ready <= impl_->given) std::rethrow_exception(impl_->failure);
  return impl_->step(impl_->given++);
}

}  // namespace trainctl
