#include "data/split_stream.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace trainctl {

namespace {

constexpr std::int64_t block_tokens = 1024;

/// Windows that labels 1 .. run - 1 of a run are cut into.
std::int64_t windows_of_run(std::int64_t run, std::int64_t seq_length) {
  return run < 2 ? 0 : (run - 2) / seq_length + 1;
}

}  // namespace

SplitStream::SplitStream(std::int64_t file_tokens, SplitRule rule, Split split) {
  const bool is_validation = split == Split::validation;
  assert(rule.fraction >= 0 && rule.fraction <= 1);
  if (!rule.blocks || rule.fraction == 0) {
    const auto train =
        static_cast<std::int64_t>(static_cast<double>(file_tokens) * (1 - rule.fraction));
    offset_ = is_validation ? train : 0;
    tokens_ = is_validation ? file_tokens - train : train;
    run_ = period_ = std::max<std::int64_t>(tokens_, 1);
    return;
  }
  // The last block of every group of n is for validation.
  const auto blocks = static_cast<std::int64_t>(std::llround(1 / rule.fraction));
  const std::int64_t for_train = (blocks - 1) * block_tokens;
  period_ = blocks * block_tokens;
  run_ = is_validation ? block_tokens : std::max<std::int64_t>(for_train, 1);
  offset_ = is_validation ? for_train : 0;
  is_blocks_ = is_validation;
  const std::int64_t groups = file_tokens / period_;
  const std::int64_t rest = file_tokens % period_;
  tokens_ = is_validation ? groups * block_tokens + std::max<std::int64_t>(rest - for_train, 0)
                          : groups * for_train + std::min(rest, for_train);
}

SplitStream::Place SplitStream::locate(std::int64_t position) const {
  assert(position >= 0 && position < tokens_);
  const std::int64_t inside = position % run_;
  return {position / run_ * period_ + offset_ + inside,
          std::min(run_ - inside, tokens_ - position)};
}

bool SplitStream::stays_in_runs(std::int64_t seq_length) const {
  return is_blocks_ && seq_length < block_tokens;
}

std::int64_t SplitStream::windows(std::int64_t seq_length) const {
  if (!stays_in_runs(seq_length)) return std::max<std::int64_t>(tokens_ - 1, 0) / seq_length;
  return tokens_ / run_ * windows_of_run(run_, seq_length) +
         windows_of_run(tokens_ % run_, seq_length);
}

SplitStream::Window SplitStream::window(std::int64_t index, std::int64_t seq_length) const {
  if (!stays_in_runs(seq_length)) return {index * seq_length, seq_length};
  const std::int64_t per_run = windows_of_run(run_, seq_length);
  const std::int64_t start = index / per_run * run_;
  const std::int64_t inside = index % per_run * seq_length;
  const std::int64_t length = std::min(run_, tokens_ - start);
  return {start + inside, std::min(seq_length, length - 1 - inside)};
}

}  // namespace trainctl
