#include <cassert>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>

#include "base/error.h"
#include "data/batch.h"

namespace trainctl {

/// A ring of steps. The thread fills those that are free; one more than `ahead` exists, since the
/// engine holds one.
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
  std::int64_t next_sample;  // the thread's
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t ready = 0;     // steps that have been prepared
  std::int64_t given = 0;     // steps that next_step has returned
  std::int64_t released = 0;  // steps whose memory is free again
  std::exception_ptr failure;
  bool is_stopped = false;
  std::jthread thread;  // last: joined before the rest goes
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
    throw Error(ExitCode::internal, "more steps are asked of the batch loader than the " +
                                        std::to_string(impl_->order.steps) + " it was made for");
  }
  impl_->released = impl_->given;
  impl_->changed.notify_all();
  impl_->changed.wait(lock, [&] { return impl_->failure || impl_->ready > impl_->given; });
  if (impl_->ready <= impl_->given) std::rethrow_exception(impl_->failure);
  return impl_->step(impl_->given++);
}

}  // namespace trainctl
