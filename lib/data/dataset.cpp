#include "data/dataset.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/text.h"
#include "data/token_file.h"

namespace trainctl {

namespace {

constexpr std::int64_t block_tokens = 1024;

/// The number of windows into which the labels 1 .. run - 1 of a run are cut.
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

namespace {

constexpr std::int64_t longest_period = 65536;

std::vector<double> fractions_of(const std::vector<double>& weights) {
  double sum = 0;
  for (double weight : weights) {
    require(std::isfinite(weight) && weight >= 0, ExitCode::config,
            formatted("the weight of a data source is {:f}; it must be >= 0", weight));
    sum += weight;
  }
  require(sum > 0, ExitCode::config, "the weights of the data sources are all 0");
  std::vector<double> fractions;
  for (double weight : weights) fractions.push_back(weight / sum);
  return fractions;
}

/// Whether every fraction is a whole number of samples in `period`, up to the rounding of doubles.
bool is_exact(const std::vector<double>& fractions, std::int64_t period) {
  return std::all_of(fractions.begin(), fractions.end(), [period](double fraction) {
    const double samples = fraction * static_cast<double>(period);
    return std::abs(samples - std::round(samples)) <= 1e-9;
  });
}

std::int64_t period_for(const std::vector<double>& fractions) {
  for (std::int64_t period = 1; period < longest_period; ++period) {
    if (is_exact(fractions, period)) return period;
  }
  return longest_period;
}

/// Whole samples that sum to `period`: each fraction is rounded, and the difference of the sum is
/// added to the largest source.
std::vector<std::int64_t> shares_of(const std::vector<double>& fractions, std::int64_t period) {
  std::vector<std::int64_t> shares;
  for (double fraction : fractions) {
    const auto nearest = std::llround(fraction * static_cast<double>(period));
    shares.push_back(fraction > 0 ? std::max<std::int64_t>(nearest, 1) : 0);
  }
  const std::int64_t sum = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  *std::max_element(shares.begin(), shares.end()) += period - sum;
  return shares;
}

}  // namespace

Blend::Blend(const std::vector<double>& weights) {
  require(weights.size() <= 4096, ExitCode::config,
          formatted("{} data sources; at most 4096 can be blended", weights.size()));
  const std::vector<double> fractions = fractions_of(weights);
  const std::int64_t period = period_for(fractions);
  share_ = shares_of(fractions, period);
  lay_pattern(period);
}

/// Sample k of a source may come once the source's quota has reached k, and must come before the
/// quota passes k + 1. Taking the allowed source with the earliest deadline meets all deadlines
/// (Tijdeman, "The chairman assignment problem", 1980): so no source is ever a whole sample off its
/// quota.
void Blend::lay_pattern(std::int64_t period) {
  std::vector<std::int64_t> had(share_.size(), 0);
  pattern_.reserve(static_cast<std::size_t>(period));
  for (std::int64_t place = 0; place < period; ++place) {
    std::size_t chosen = share_.size();
    std::int64_t earliest = 0;
    for (std::size_t source = 0; source < share_.size(); ++source) {
      const std::int64_t share = share_[source];
      // Released when floor(had * period / share) <= place, that is had * period < (place + 1) *
      // share; due by place ceil((had + 1) * period / share).
      if (had[source] * period >= (place + 1) * share) continue;
      const std::int64_t due = ((had[source] + 1) * period + share - 1) / share;
      if (chosen == share_.size() || due < earliest) {
        chosen = source;
        earliest = due;
      }
    }
    assert(chosen < share_.size());
    pattern_.push_back({chosen, had[chosen]++});
  }
}

Blend::Pick Blend::pick(std::int64_t index) const {
  const std::int64_t round = index / period();
  const Pick first = pattern_[static_cast<std::size_t>(index % period())];
  return {first.source, round * share_[first.source] + first.sample};
}

std::vector<std::int64_t> Blend::counts(std::int64_t samples) const {
  std::vector<std::int64_t> counts;
  for (const std::int64_t share : share_) counts.push_back(samples / period() * share);
  for (std::int64_t place = 0; place < samples % period(); ++place) {
    ++counts[pattern_[static_cast<std::size_t>(place)].source];
  }
  return counts;
}

// The rows of a split whose documents are not joined: each row has tokens of one document only.

/// A document is cut into rows of seq_length labels, and one with the rest: each of its tokens but
/// the first is a label once. Validation gets whole documents: the last part of all documents, or
/// the last of every round(1/fraction) documents (SplitRule::blocks).
class DocumentRows {
 public:
  /// Throws Error{bad_data} if the file does not say where its documents begin.
  DocumentRows(const TokenFile& file, SplitRule rule, Split split, std::int64_t seq_length);

  std::int64_t tokens() const { return tokens_; }  // tokens of the split's documents
  std::int64_t rows() const { return documents_.empty() ? 0 : documents_.back().end_row; }
  /// Row `index` of [0, rows()): its first token in the file, and the number of labels.
  SplitStream::Window row(std::int64_t index) const;
  /// The documents of this object, cut into rows of another length.
  DocumentRows cut_at(std::int64_t seq_length) const;

 private:
  struct Document {
    std::int64_t first;    // first token, in the file
    std::int64_t labels;   // number of tokens - 1
    std::int64_t end_row;  // number of the row after the document's last
  };
  std::vector<Document> documents_;  // documents that have rows
  std::int64_t seq_length_;
  std::int64_t tokens_ = 0;
};

namespace {

/// Whether document `index` of `count` belongs to the split.
bool belongs(std::int64_t index, std::int64_t count, SplitRule rule, Split split) {
  const bool validation = split == Split::validation;
  if (rule.fraction == 0) return !validation;
  if (rule.blocks) {
    const auto every = static_cast<std::int64_t>(std::llround(1 / rule.fraction));
    return (index % every == every - 1) == validation;
  }
  const auto train = static_cast<std::int64_t>(static_cast<double>(count) * (1 - rule.fraction));
  return (index >= train) == validation;
}

}  // namespace

DocumentRows::DocumentRows(const TokenFile& file, SplitRule rule, Split split,
                           std::int64_t seq_length)
    : seq_length_(seq_length) {
  require(file.format() == "megatron", ExitCode::bad_data,
          file.path().string() +
              ": the file does not say where its documents begin, which data.packing: false needs; "
              "use text or a pair of .bin and .idx, or set data.packing to true");
  const std::int64_t count = file.documents();
  std::int64_t rows = 0;
  for (std::int64_t index = 0; index < count; ++index) {
    if (!belongs(index, count, rule, split)) continue;
    const std::int64_t first = file.document_start(index);
    const std::int64_t length = file.document_start(index + 1) - first;
    tokens_ += length;
    if (length < 2) continue;  // a single token gives no label
    rows += (length - 2) / seq_length + 1;
    documents_.push_back({first, length - 1, rows});
  }
}

DocumentRows DocumentRows::cut_at(std::int64_t seq_length) const {
  DocumentRows cut = *this;
  cut.seq_length_ = seq_length;
  std::int64_t rows = 0;
  for (Document& document : cut.documents_) {
    rows += (document.labels - 1) / seq_length + 1;
    document.end_row = rows;
  }
  return cut;
}

SplitStream::Window DocumentRows::row(std::int64_t index) const {
  assert(index >= 0 && index < rows());
  const auto found = std::upper_bound(
      documents_.begin(), documents_.end(), index,
      [](std::int64_t wanted, const Document& document) { return wanted < document.end_row; });
  const std::int64_t own = (found->labels - 1) / seq_length_ + 1;
  const std::int64_t before = (index - (found->end_row - own)) * seq_length_;
  return {found->first + before, std::min(seq_length_, found->labels - before)};
}

// One file of a dataset: its windows, in the order in which training draws them.

/// The rule by which epochs that begin in this session are drawn.
struct DrawRule {
  std::int64_t seq_length = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
};

class Source {
 public:
  using Window = SplitStream::Window;

  /// Starts with the first epoch. `order` is SourcePosition::order.
  Source(TokenFile file, SplitStream stream, std::optional<DocumentRows> rows, DrawRule rule,
         std::int64_t order);

  const TokenFile& file() const { return file_; }
  std::int64_t tokens() const { return rows_ ? rows_->tokens() : stream_.tokens(); }
  /// The number of windows of the source's split, which share no label; window() gives one of them
  /// by its number (SplitStream, DocumentRows).
  std::int64_t windows() const { return windows_; }
  Window window(std::int64_t index) const;
  /// The place in the file of the token at a window's position, and of the tokens that follow.
  SplitStream::Place locate(std::int64_t position) const;

  /// From now on sample 0 is the sample at `position`.
  void go_on(const SourcePosition& position);
  SourcePosition position_after(std::int64_t samples) const;
  /// The windows read before this session, counted in its epochs: epochs x windows() + a part.
  std::int64_t windows_behind() const { return (at_.epoch + 1) * windows_ - left_; }
  /// Labels of the epoch in progress that are in no sample, since they do not fill a row.
  std::int64_t rest() const;
  /// The part of a training sample that begins with its label `done`: consecutive positions. It has
  /// no labels if `done` is after the sample's last label.
  Window part(std::int64_t sample, std::int64_t done) const;

 private:
  /// A window of the epoch that was in progress when this session began, and a label in it.
  struct Start {
    std::int64_t window;
    std::int64_t label;
  };
  bool cuts_rows() const { return rows_ && rule_.seq_length < at_.seq_length; }
  const DocumentRows& rows_of(std::int64_t seq_length) const;
  std::int64_t windows_of(std::int64_t seq_length) const;
  /// The window at `place` in the order of an epoch.
  Window drawn(std::int64_t epoch, std::int64_t place, const DrawRule& rule) const;
  Window drawn_before(std::int64_t place) const;
  Start start_of(std::int64_t sample) const;

  TokenFile file_;
  SplitStream stream_;
  std::optional<DocumentRows> rows_;  // used instead of stream_ if documents are not joined
  std::optional<DocumentRows>
      old_rows_;  // rows of the epoch in progress, if they have another length
  DrawRule rule_;
  std::int64_t windows_;
  SourcePosition at_;
  std::int64_t left_ = 0;
  // If rows of documents are cut: for each window after at_.windows, the samples up to its end.
  std::vector<std::int64_t> ends_;
};

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

/// In rows of documents, a position is the number of a token in the file.
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
    if (!rows_) {  // the label may lie in a later window
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

namespace {

/// Number of the document that token `token` belongs to: the last that starts at or before it.
std::int64_t document_of(const TokenFile& file, std::int64_t token) {
  std::int64_t low = 0;
  std::int64_t high = file.documents();
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (file.document_start(middle) <= token ? low : high) = middle;
  }
  return low;
}

/// Writes the document number of each token from `first` on, starting from `number`. `previous`:
/// the document of the token before; updated to the document of the last token.
void number_documents(const TokenFile& file, std::int64_t first, std::span<std::int32_t> out,
                      std::int32_t& number, std::int64_t& previous) {
  std::int64_t document = document_of(file, first);
  if (previous >= 0 && document != previous) ++number;
  std::int64_t next = file.document_start(document + 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t token = first + static_cast<std::int64_t>(i);
    if (token >= next) {
      next = file.document_start(++document + 1);
      if (token >= next) {  // skip empty documents, maybe many
        document = document_of(file, token);
        next = file.document_start(document + 1);
      }
      ++number;
    }
    out[i] = number;
  }
  previous = document;
}

std::vector<double> weights_of(const std::vector<SourceFile>& sources) {
  std::vector<double> weights;
  for (const SourceFile& source : sources) weights.push_back(source.weight);
  return weights;
}

}  // namespace

struct Dataset::Impl {
  std::vector<Source> sources;
  std::vector<std::int64_t> first_window;  // number of each source's first window, over all sources
  Blend blend;
  std::int64_t seq_length;
  std::int64_t tokens = 0;
  std::int64_t windows = 0;
  // The sample with which training began or was resumed.
  std::int64_t first_sample = 0;
  std::int64_t pattern = 0;
  std::vector<std::int64_t> before{};  // samples of each source earlier in the blend's pattern

  /// Fills a sample. part(done) is the part of the sample that begins with its label `done`;
  /// without labels if the rest of the sample does not count.
  template <class Part>
  void fill(const Source& source, Sample& out, const Part& part) const;
};

namespace {

const char* name_of(Split split) { return split == Split::train ? "train" : "validation"; }

/// A source whose rows are documents. Throws Error{bad_data} if there is no row.
Source document_source(SourceFile source, SplitRule rule, Split split, DrawRule draw,
                       std::int64_t order) {
  TokenFile& file = source.file;
  DocumentRows rows(file, rule, split, draw.seq_length);
  require(
      source.weight == 0 || rows.rows() > 0, ExitCode::bad_data,
      formatted("{}: its {} split has no document of 2 tokens or more; the file has {} documents",
                file.path().string(), name_of(split), file.documents()));
  const SplitStream all(file.tokens(), {}, Split::train);
  return {std::move(file), all, std::move(rows), draw, order};
}

/// A source of joined documents. Throws Error{bad_data} if there is no sample.
Source stream_source(SourceFile source, SplitRule rule, Split split, DrawRule draw,
                     std::int64_t order) {
  TokenFile& file = source.file;
  const SplitStream stream(file.tokens(), rule, split);
  require(
      source.weight == 0 || stream.tokens() > draw.seq_length, ExitCode::bad_data,
      formatted("{}: its {} split has {} of the file's {} tokens; seq_length {} needs at least {}",
                file.path().string(), name_of(split), stream.tokens(), file.tokens(),
                draw.seq_length, draw.seq_length + 1));
  return {std::move(file), stream, std::nullopt, draw, order};
}

}  // namespace

Dataset::Dataset(std::vector<SourceFile> sources, SplitRule rule, Split split,
                 std::int64_t seq_length, std::uint64_t seed, bool shuffle)
    : impl_(new Impl{{}, {}, Blend(weights_of(sources)), seq_length}) {
  assert(seq_length > 0);
  const auto open = rule.documents ? document_source : stream_source;
  for (SourceFile& file : sources) {
    const DrawRule draw{seq_length, seed, shuffle};
    Source source = open(std::move(file), rule, split, draw, std::ssize(impl_->sources));
    impl_->first_window.push_back(impl_->windows);
    impl_->tokens += source.tokens();
    impl_->windows += source.windows();
    impl_->sources.push_back(std::move(source));
  }
  impl_->before.assign(impl_->sources.size(), 0);
}

Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

std::int64_t Dataset::seq_length() const { return impl_->seq_length; }
std::int64_t Dataset::tokens() const { return impl_->tokens; }
std::int64_t Dataset::windows() const { return impl_->windows; }
std::int64_t Dataset::windows_behind() const {
  std::int64_t behind = 0;
  for (const Source& source : impl_->sources) behind += source.windows_behind();
  return behind;
}

std::int64_t Dataset::rest(std::size_t index) const { return impl_->sources[index].rest(); }

void Dataset::go_on(const DataPosition& position) {
  assert(position.sources.size() == impl_->sources.size());
  for (std::size_t i = 0; i < impl_->sources.size(); ++i) {
    impl_->sources[i].go_on(position.sources[i]);
  }
  impl_->first_sample = position.sample;
  impl_->pattern = position.pattern;
  impl_->before = impl_->blend.counts(position.pattern);
}

DataPosition Dataset::position(std::int64_t sample) const {
  assert(sample >= impl_->first_sample);
  DataPosition position{
      .sample = sample, .pattern = impl_->pattern + sample - impl_->first_sample, .sources = {}};
  const std::vector<std::int64_t> counts = impl_->blend.counts(position.pattern);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    position.sources.push_back(impl_->sources[i].position_after(counts[i] - impl_->before[i]));
  }
  return position;
}

template <class Part>
void Dataset::Impl::fill(const Source& source, Sample& out, const Part& part) const {
  out.tokens.assign(static_cast<std::size_t>(seq_length + 1), 0);
  out.labels.assign(static_cast<std::size_t>(seq_length), 0);
  out.document.assign(static_cast<std::size_t>(seq_length), 0);
  out.scored = 0;
  std::int32_t number = 0;
  std::int64_t previous = -1;  // document of the token before
  std::int64_t end = -1;       // position after the previous part
  while (out.scored < seq_length) {
    const SplitStream::Window now = part(out.scored);
    if (now.scored == 0) break;
    if (end >= 0 && now.first != end) {
      ++number;
      previous = -1;
    }
    for (std::int64_t done = 0; done <= now.scored;) {
      const SplitStream::Place place = source.locate(now.first + done);
      const auto count = static_cast<std::size_t>(std::min(place.follow, now.scored + 1 - done));
      const auto at = static_cast<std::size_t>(out.scored + done);
      source.file().read(place.token, std::span(out.tokens).subspan(at, count));
      const auto inputs = std::span(out.document).subspan(at);
      number_documents(source.file(), place.token, inputs.first(std::min(count, inputs.size())),
                       number, previous);
      done += static_cast<std::int64_t>(count);
    }
    const auto labels = out.tokens.begin() + out.scored + 1;
    std::copy_n(labels, now.scored, out.labels.begin() + out.scored);
    out.scored += now.scored;
    end = now.first + now.scored;
  }
  std::fill(out.document.begin() + out.scored, out.document.end(), number);
}

void Dataset::train_sample(std::int64_t index, Sample& out) const {
  assert(index >= impl_->first_sample);
  const Blend::Pick pick = impl_->blend.pick(index - impl_->first_sample + impl_->pattern);
  const Source& source = impl_->sources[pick.source];
  const std::int64_t sample = pick.sample - impl_->before[pick.source];
  impl_->fill(source, out, [&](std::int64_t done) { return source.part(sample, done); });
}

void Dataset::window(std::int64_t index, Sample& out) const {
  assert(index >= 0 && index < impl_->windows);
  const auto after =
      std::upper_bound(impl_->first_window.begin(), impl_->first_window.end(), index);
  const std::int64_t number = after - impl_->first_window.begin() - 1;
  const Source& source = at(impl_->sources, number);
  const SplitStream::Window window = source.window(index - at(impl_->first_window, number));
  impl_->fill(source, out,
              [&](std::int64_t done) { return done == 0 ? window : SplitStream::Window{}; });
}

}  // namespace trainctl
