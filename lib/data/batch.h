// A micro-batch as the engine consumes it, and the loader that prepares the coming ones on its own
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"

namespace trainctl {

/// T = sequences x seq_length positions, row by row; fewer of each row where rows end together
/// earlier (shorten). A position is real if its label is a token of the data, whatever its weight:
/// a row begins with those, and the rest of it is padding.
struct Batch {
  std::vector<std::int32_t> tokens;        // [T] inputs
  std::vector<std::int32_t> labels;        // [T] the token after each
  std::vector<float> loss_weight;          // [T]
  std::vector<std::int32_t> position;      // [T]
  std::vector<std::int32_t> document;      // [T] running number of the document within its sequence
  std::vector<std::int64_t> global_token;  // [T] sample index * seq_length + place in the sequence
  std::vector<std::int64_t> real;          // [sequences] real positions of each row
  double weight_sum = 0;                   // sum of loss_weight
  std::int64_t length = 0;                 // tokens of each row, at least 1
};

/// Room for rows of `length` tokens, all of them real; weight_sum becomes 0.
void resize(Batch& out, std::int64_t sequences, std::int64_t length);

struct BatchRule {
  std::int64_t sequences = 0;    // of one micro-batch
  std::int64_t length_step = 0;  // batches are shortened to multiples of it; 0: they are not
  bool reset_position_ids = false;
  bool eod_mask_loss = false;
  std::int64_t eod_token = -1;
};

/// Real positions of all rows, and of them those whose label has a weight above 0.
std::int64_t real_positions(const Batch& batch);
std::int64_t counted_labels(const Batch& batch);

/// Cuts tokens that are padding in all rows off their end: each row keeps the number of tokens that
/// the longest one needs, rounded up to a multiple of `step`, or all. Values of kept tokens stay as
/// they are.
void shorten(Batch& batch, std::int64_t step);

/// Fills `out` (reusing its memory) from `rule.sequences` samples starting at `first_sample`.
/// Windows past the end of a validation split get weight 0.
void make_train_batch(const Dataset& data, const BatchRule& rule, std::int64_t first_sample,
                      Batch& out);
void make_window_batch(const Dataset& data, const BatchRule& rule, std::int64_t first_window,
                       Batch& out);

/// The micro-batches of this rank, in order, prepared ahead by one thread. Micro-batch m of a step
/// on data-parallel rank d starts (m * data_parallel + d) * sequences samples after the step, and
/// each step global samples after the one before. Steps with fewer micro-batches may come first.
class BatchLoader {
 public:
  struct Order {
    std::int64_t global_batch = 0;
    std::int64_t microbatches = 0;  // per rank and step
    std::int64_t data_parallel = 1;
    std::int64_t data_rank = 0;
    std::int64_t first_sample = 0;  // of the first step
    std::int64_t steps = 0;         // how many are wanted
    std::int64_t ahead = 2;         // steps prepared ahead; 0: each when it is asked for
    struct Smaller {
      std::int64_t steps = 0;  // one after another
      std::int64_t microbatches = 0;
    };
    std::vector<Smaller> smaller{};  // what the first of the steps have
  };
  BatchLoader(const Dataset& data, BatchRule rule, Order order);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// All micro-batches of the next step, valid until the next call. Rethrows what the thread met.
  const std::vector<Batch>& next_step();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainctl
