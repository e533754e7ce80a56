#include "data/source.h"

#include <algorithm>
#include <utility>

#include "base/at.h"
#include "base/philox.h"
#include "data/permutation.h"

namespace trainctl {

namespace {

std::int64_t divided_up(std::int64_t value, std::int64_t by) { return (value + by - 1) / by; }

}  // namespace

Source::Source(TokenFile file, SplitStream stream, std::optional<DocumentRows> rows, DrawRule rule,
               std::int64_t order)
    : file_(std::move(file)),
      stream_(stream),
      rows_(std::move(rows)),
      rule_(rule),
      windows_(rows_ ? rows_->rows() : stream_.windows(rule.seq_length)) {
  go_on(
      {.order = order, .seq_length = rule.seq_length, .seed = rule.seed, .shuffle = rule.shuffle});
}

Source::Window Source::window(std::int64_t index) const {
  return rows_ ? rows_->row(index) : stream_.window(index, rule_.seq_length);
}

/// A row's position is its token in the file.
SplitStream::Place Source::locate(std::int64_t position) const {
  if (rows_) return {position, file_.tokens() - position};
  return stream_.locate(position);
}

const DocumentRows& Source::rows_of(std::int64_t seq_length) const {
  return seq_length == rule_.seq_length ? *rows_ : *old_rows_;
}

std::int64_t Source::windows_of(std::int64_t seq_length) const {
  if (rows_) return rows_of(seq_length).rows();
  return std::max<std::int64_t>(0, stream_.tokens() - 1) / seq_length;
}

Source::Window Source::drawn(std::int64_t epoch, std::int64_t place, const DrawRule& rule) const {
  const std::int64_t count = windows_of(rule.seq_length);
  constexpr std::uint64_t streams_of_data = 0x6461746100000000ULL;
  const Philox random(rule.seed, streams_of_data + static_cast<std::uint64_t>(at_.order));
  const auto draw = static_cast<std::uint64_t>(2 * epoch);
  std::int64_t window = place;
  if (rule.shuffle) {
    window = static_cast<std::int64_t>(permuted(
        static_cast<std::uint64_t>(place), static_cast<std::uint64_t>(count), random.bits64(draw)));
  }
  if (rows_) return rows_of(rule.seq_length).row(window);
  std::int64_t first = window * rule.seq_length;
  if (rule.shuffle) {
    first += static_cast<std::int64_t>(random.bits64(draw + 1) %
                                       static_cast<std::uint64_t>(rule.seq_length));
  }
  return {std::min(first, stream_.tokens() - 1 - rule.seq_length), rule.seq_length};
}

Source::Window Source::drawn_before(std::int64_t place) const {
  return drawn(at_.epoch, place, {at_.seq_length, at_.seed, at_.shuffle});
}

void Source::go_on(const SourcePosition& position) {
  at_ = position;
  ends_.clear();
  old_rows_.reset();
  if (rows_ && at_.seq_length != rule_.seq_length) old_rows_ = rows_->cut_at(at_.seq_length);
  const std::int64_t unread = windows_of(at_.seq_length) - at_.windows;
  left_ = unread;
  if (!rows_) {
    left_ = (unread * at_.seq_length - at_.labels) / rule_.seq_length;
  } else if (cuts_rows()) {
    std::int64_t begun = at_.labels;
    std::int64_t end = 0;
    for (std::int64_t i = 0; i < unread; ++i) {
      end += divided_up(drawn_before(at_.windows + i).scored - begun, rule_.seq_length);
      ends_.push_back(end);
      begun = 0;
    }
    left_ = end;
  }
}

std::int64_t Source::rest() const {
  if (rows_) return 0;
  const std::int64_t unread = windows_of(at_.seq_length) - at_.windows;
  return unread * at_.seq_length - at_.labels - left_ * rule_.seq_length;
}

Source::Start Source::start_of(std::int64_t sample) const {
  if (!rows_) {
    const std::int64_t label =
        at_.windows * at_.seq_length + at_.labels + sample * rule_.seq_length;
    return {label / at_.seq_length, label % at_.seq_length};
  }
  if (!cuts_rows()) return {at_.windows + sample, sample == 0 ? at_.labels : 0};
  const auto found = std::upper_bound(ends_.begin(), ends_.end(), sample);
  const std::int64_t index = found - ends_.begin();
  const std::int64_t before = index == 0 ? 0 : at(ends_, index - 1);
  const std::int64_t begun = index == 0 ? at_.labels : 0;
  return {at_.windows + index, begun + (sample - before) * rule_.seq_length};
}

SourcePosition Source::position_after(std::int64_t samples) const {
  SourcePosition position = at_;
  if (samples < left_) {
    const Start start = start_of(samples);
    position.windows = start.window;
    position.labels = start.label;
    return position;
  }
  const std::int64_t count = std::max<std::int64_t>(1, windows_);
  const std::int64_t more = samples - left_;
  return {.order = at_.order,
          .epoch = at_.epoch + 1 + more / count,
          .seq_length = rule_.seq_length,
          .seed = rule_.seed,
          .shuffle = rule_.shuffle,
          .windows = more % count,
          .labels = 0};
}

Source::Window Source::part(std::int64_t sample, std::int64_t done) const {
  Start start{};
  Window window{};
  if (sample < left_) {
    start = start_of(sample);
    start.label += done;
    if (!rows_) {  // it may lie in a window after that one
      start.window += start.label / at_.seq_length;
      start.label %= at_.seq_length;
    }
    window = drawn_before(start.window);
  } else {
    const std::int64_t more = sample - left_;
    start.label = done;
    window = drawn(at_.epoch + 1 + more / windows_, more % windows_, rule_);
  }
  const std::int64_t follow = std::min(window.scored - start.label, rule_.seq_length - done);
  return {window.first + start.label, std::max<std::int64_t>(0, follow)};
}

}  // namespace trainctl
