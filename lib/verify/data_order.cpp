#include "verify/data_order.h"

#include <algorithm>

#include "base/at.h"

namespace trainctl {

namespace {

constexpr std::int64_t key_tokens = 8;  // by which a place in the file is found

void count(OrderCount& broken, std::int64_t step) {
  if (broken.samples++ == 0) broken.step = step;
}

}  // namespace

/// A sample: the inputs whose labels count, and the last of those labels.
struct DataOrder::Row {
  const std::int32_t* tokens;
  std::int64_t labels;
  std::int32_t last;
};

DataOrder::DataOrder(const FileTokens& file, std::int64_t seq_length, bool shuffle)
    : file_(file), shuffle_(shuffle) {
  const auto count = std::ssize(file.tokens);
  if (file.documents.empty()) {
    windows_ = (count - 1) / seq_length;
    for (std::int64_t i = 0; i + seq_length < count; ++i) {
      places_.emplace(key_of(&file.tokens[static_cast<std::size_t>(i)], seq_length), i);
    }
    return;
  }
  windows_ = std::ssize(file.documents);
  for (std::int64_t i = 0; i < windows_; ++i) {
    const std::int64_t begin = at(file.documents, i);
    const std::int64_t end = i + 1 < windows_ ? at(file.documents, i + 1) : count;
    places_.emplace(key_of(&file.tokens[static_cast<std::size_t>(begin)], end - begin - 1), begin);
  }
}

std::uint64_t DataOrder::key_of(const std::int32_t* tokens, std::int64_t count) const {
  std::uint64_t key = 0;
  for (std::int64_t i = 0; i < std::min(count, key_tokens); ++i) {
    key = key * 1'000'003 + static_cast<std::uint64_t>(tokens[i]) + 1;
  }
  return key;
}

bool DataOrder::matches(const Row& row, std::int64_t place) const {
  const auto begin = file_.tokens.begin() + place;
  return place + row.labels < std::ssize(file_.tokens) &&
         std::equal(row.tokens, row.tokens + row.labels, begin) && begin[row.labels] == row.last;
}

/// The first that this epoch has not had yet, else one that it has; -1: none.
std::int64_t DataOrder::place_of(const Row& row) const {
  std::int64_t had = -1;
  std::int64_t found = -1;
  const auto [first, last] = places_.equal_range(key_of(row.tokens, row.labels));
  for (auto one = first; one != last; ++one) {
    const std::int64_t place = one->second;
    if (!matches(row, place)) continue;
    const bool again = std::ranges::find(epoch_, place) != epoch_.end();
    std::int64_t& taken = again ? had : found;
    if (taken < 0 || place < taken) taken = place;
  }
  return found < 0 ? had : found;
}

void DataOrder::add(std::int64_t step, const Batch& batch) {
  const auto rows = std::ssize(batch.real);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (std::ssize(epoch_) == windows_) {
      before_ = std::move(epoch_);
      epoch_.clear();
    }
    const auto first = static_cast<std::size_t>(row * batch.length);
    const std::int64_t labels = at(batch.real, row);
    const std::int64_t place = place_of(
        {&batch.tokens[first], labels, batch.labels[first + static_cast<std::size_t>(labels) - 1]});
    if (place < 0) count(missing_, step);
    if (place >= 0 && std::ranges::find(epoch_, place) != epoch_.end()) count(twice_, step);
    if (!shuffle_ && !epoch_.empty() && place <= epoch_.back()) count(other_, step);
    if (!before_.empty()) {
      ++repeated_;
      if (at(before_, std::ssize(epoch_)) == place) count(alike_, step);
    }
    epoch_.push_back(place);
  }
}

std::vector<OrderCount> DataOrder::broken() const {
  std::vector<OrderCount> all{missing_, twice_, other_};
  // A few are in the same place by chance.
  constexpr std::int64_t enough = 8;
  if (shuffle_ && repeated_ >= enough && 2 * alike_.samples > repeated_) all.push_back(alike_);
  std::erase_if(all, [](const OrderCount& one) { return one.samples == 0; });
  return all;
}

}  // namespace trainctl
