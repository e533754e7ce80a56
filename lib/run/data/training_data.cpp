#include "run/data/training_data.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "comm/others_wait.h"

namespace trainctl {

namespace {

void tell_rests(const Dataset& train, const Config& config, const DataPosition& position) {
  for (std::size_t i = 0; i < position.sources.size(); ++i) {
    const std::int64_t rest = train.rest(i);
    if (rest == 0) continue;
    log_info("data: " + config.data.train[i].path + ": the last " + format_grouped(rest) +
             " labels of epoch " + std::to_string(position.sources[i].epoch + 1) +
             " are left out, since they are fewer than seq_length " +
             std::to_string(train.seq_length()));
  }
}

}  // namespace

TrainingData::TrainingData(Corpus corpus, const Config& config, const Continuation* continuation,
                           Group& everyone)
    : corpus_(std::move(corpus)), config_(config) {
  if (continuation == nullptr) {
    while_others_wait(everyone, "data.train", everyone.rank() == 0,
                      [&] { identities_ = identify_sources(config.data); });
    return;
  }
  if (everyone.rank() == 0) identities_ = continuation->identities;
  if (!continuation->data) return;
  const DataPlace& place = *continuation->data;
  absent_ = place.absent;
  corpus_.train.go_on(place.position);
  if (everyone.rank() == 0) tell_rests(corpus_.train, config, place.position);
}

SavedData TrainingData::saved(std::int64_t samples) const {
  if (identities_.empty()) return {};
  return saved_data(config_.data, identities_, corpus_.train.position(samples), absent_);
}

}  // namespace trainctl
