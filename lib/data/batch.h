// A micro-batch as the engine consumes it, and the loader that prepares the next ones on a separate
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"

namespace trainctl {

/// T = sequences x length positions, row by row; `length` is seq_length unless shorten() has cut
/// the rows. A position is real if its label is a token of the data, whatever its weight: a row
/// begins with its real positions, and the rest of the row is padding.
struct Batch {
  std::vector<std::int32_t> tokens;        // [T] inputs
  std::vector<std::int32_t> labels;        // [T] the token after each input
  std::vector<float> loss_weight;          // [T]
  std::vector<std::int32_t> position;      // [T]
  std::vector<std::int32_t> document;      // [T] running number of the document within its sequence
  std::vector<std::int64_t> global_token;  // [T] sample index * seq_length + place in the sequence
  std::vector<std::int64_t> real;          // [sequences] real positions of each row
  double weight_sum = 0;                   // sum of loss_weight
  std::int64_t length = 0;                 // tokens of each row, at least 1
};

/// Resizes `out` to rows of `length` tokens, all marked as real; weight_sum becomes 0.
void resize(Batch& out, std::int64_t sequences, std::int64_t length);

struct BatchRule {
  std::int64_t sequences = 0;    // sequences of one micro-batch
  std::int64_t length_step = 0;  // shorten batches to multiples of this; off if 0
  bool reset_position_ids = false;
  bool eod_mask_loss = false;
  std::int64_t eod_token = -1;
};

/// The number of real positions in all rows, and of those whose label has a weight above 0.
std::int64_t real_positions(const Batch& batch);
std::int64_t counted_labels(const Batch& batch);

/// Cuts off the padding that all rows have at their end: each row keeps the number of tokens that
/// the longest row needs, rounded up to a multiple of `step`, at most all. Values of kept tokens do
/// not change.
void shorten(Batch& batch, std::int64_t step);

/// Fills `out` (reusing its memory) from `rule.sequences` samples starting at `first_sample`.
/// Windows past the end of a validation split get weight 0.
void make_train_batch(const Dataset& data, const BatchRule& rule, std::int64_t first_sample,
                      Batch& out);
void make_window_batch(const Dataset& data, const BatchRule& rule, std::int64_t first_window,
                       Batch& out);

/// The micro-batches of this rank, in order, prepared ahead by one thread. On data-parallel rank d,
/// micro-batch m starts (m * data_parallel + d) * sequences samples after the start of its step,
/// and a step starts where the step before ended. Steps with fewer micro-batches may come first.
class BatchLoader {
 public:
  struct Order {
    std::int64_t global_batch = 0;
    std::int64_t microbatches = 0;  // per rank and step
    std::int64_t data_parallel = 1;
    std::int64_t data_rank = 0;
    std::int64_t first_sample = 0;  // first sample of the first step
    std::int64_t steps = 0;         // number of steps
    std::int64_t ahead = 2;         // steps prepared ahead; none if 0
    struct Smaller {
      std::int64_t steps = 0;  // consecutive steps of this size
      std::int64_t microbatches = 0;
    };
    std::vector<Smaller> smaller{};  // sizes of the first steps
  };
  BatchLoader(const Dataset& data, BatchRule rule, Order order);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// All micro-batches of the next step, valid until the next call. Rethrows errors of the thread.
  const std::vector<Batch>& next_step();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
