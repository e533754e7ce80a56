#include <atomic>
#include <cmath>
#include <limits>

#include "ops/elements.h"
#include "ops/plain/kernels.h"

namespace trainctl {

namespace {

template <class T>
void gradient_row(const CrossEntropyArgs& args, std::int64_t row, double logsumexp) {
  const std::int64_t columns = args.logits.columns();
  T* logits = args.logits.as<T>() + row * columns;
  const float weight = args.weight.as<float>()[row];
  const double scale =
      static_cast<double>(weight) * args.state->loss_factor * args.state->loss_scale;
  const std::int64_t label = args.labels.as<std::int32_t>()[row] - args.first_column;
  for (std::int64_t i = 0; i < columns; ++i) {
    const double z = formed_logit(args.form, to_float(logits[i]));
    const double chance = i < args.valid ? std::exp(z - logsumexp) : 0.0;
    const double hit = i == label && i < args.valid ? 1.0 : 0.0;
    const double part = args.form.cap > 0 ? z / args.form.cap : 0.0;
    const double slope = args.form.scale * (1 - part * part);
    const double gradient = weight == 0 ? 0.0 : (chance - hit) * slope * scale;
    logits[i] = from_float<T>(static_cast<float>(gradient));
  }
}

}  // namespace

void cross_entropy_stats_plain(const OpContext&, const CrossEntropyArgs& args) {
  with_element_type(args.logits.dtype, [&]<class T>(T) {
    const std::int64_t columns = args.logits.columns();
    for (std::int64_t row = 0; row < args.logits.rows(); ++row) {
      const T* logits = args.logits.as<T>() + row * columns;
      float highest = -std::numeric_limits<float>::infinity();
      const auto z = [&](std::int64_t i) { return formed_logit(args.form, to_float(logits[i])); };
      for (std::int64_t i = 0; i < args.valid; ++i) highest = std::fmax(highest, z(i));
      double sum = 0;
      for (std::int64_t i = 0; i < args.valid; ++i) {
        if (z(i) == -std::numeric_limits<float>::infinity()) continue;
        sum += std::exp(static_cast<double>(z(i)) - highest);
      }
      const std::int64_t label = args.labels.as<std::int32_t>()[row] - args.first_column;
      const bool here = label >= 0 && label < args.valid;
      args.row_max.as<float>()[row] = highest;
      args.row_sum.as<float>()[row] = static_cast<float>(sum);
      args.target.as<float>()[row] = here ? z(label) : 0.0F;
    }
  });
}

void cross_entropy_combine_plain(const OpContext&, const CrossEntropyCombine& args) {
  const std::int64_t ranks = args.shards.shape[0];
  const std::int64_t rows = args.shards.shape[2];
  const float* shards = args.shards.as<float>();
  float* whole = args.whole.as<float>();
  for (std::int64_t row = 0; row < rows; ++row) {
    float highest = -std::numeric_limits<float>::infinity();
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      highest = std::fmax(highest, shards[rank * 3 * rows + row]);
    }
    double sum = 0;
    float target = 0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const float* shard = shards + rank * 3 * rows + row;
      // Skips a shard without finite logits; otherwise two infinities would give NaN.
      if (shard[rows] != 0)
        sum += static_cast<double>(shard[rows]) * std::exp(static_cast<double>(shard[0] - highest));
      target += shard[2 * rows];
    }
    whole[row] = highest;
    whole[rows + row] = static_cast<float>(sum);
    whole[2 * rows + row] = target;
  }
}

void cross_entropy_gradient_plain(const OpContext&, const CrossEntropyArgs& args) {
  with_element_type(args.logits.dtype, [&]<class T>(T) {
    double loss = 0;
    for (std::int64_t row = 0; row < args.logits.rows(); ++row) {
      const double logsumexp = args.row_max.as<float>()[row] +
                               std::log(static_cast<double>(args.row_sum.as<float>()[row]));
      const double weight = args.weight.as<float>()[row];
      if (weight != 0) loss += weight * (logsumexp - args.target.as<float>()[row]);
      if (!args.forward_only) gradient_row<T>(args, row, logsumexp);
    }
    if (args.owns_loss) std::atomic_ref(args.state->loss_sum).fetch_add(loss);
  });
}

}  // namespace trainctl
