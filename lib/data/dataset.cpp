#include "data/dataset.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "base/at.h"
#include "base/error.h"
#include "data/blend.h"
#include "data/document_rows.h"
#include "data/source.h"
#include "data/split_stream.h"

namespace trainctl {

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

/// Numbers the documents of the `count` tokens from `first`, going on from `number`; `previous` is
/// the document of the token before, and is moved on.
void number_documents(const TokenFile& file, std::int64_t first, std::span<std::int32_t> out,
                      std::int32_t& number, std::int64_t& previous) {
  std::int64_t document = document_of(file, first);
  if (previous >= 0 && document != previous) ++number;
  std::int64_t next = file.document_start(document + 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t token = first + static_cast<std::int64_t>(i);
    if (token >= next) {
      next = file.document_start(++document + 1);
      if (token >= next) {  // empty documents, maybe many
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
  std::vector<std::int64_t> first_window;  // number of each one's first among all sources'
  Blend blend;
  std::int64_t seq_length;
  std::int64_t tokens = 0;
  std::int64_t windows = 0;
  // Where training went on.
  std::int64_t first_sample = 0;
  std::int64_t pattern = 0;
  std::vector<std::int64_t> before{};  // samples of each source earlier in the blend's pattern

  /// `part(done)` is the part of the sample that begins with its label `done`; none: the rest does
  /// not count.
  template <class Part>
  void fill(const Source& source, Sample& out, const Part& part) const;
};

namespace {

const char* name_of(Split split) { return split == Split::train ? "train" : "validation"; }

/// Whose rows are documents. Throws Error{bad_data} without a row.
Source document_source(SourceFile source, SplitRule rule, Split split, DrawRule draw,
                       std::int64_t order) {
  TokenFile& file = source.file;
  DocumentRows rows(file, rule, split, draw.seq_length);
  require(source.weight == 0 || rows.rows() > 0, ExitCode::bad_data,
          file.path().string() + ": its " + name_of(split) +
              " split has no document of 2 tokens or more; the file has " +
              std::to_string(file.documents()) + " documents");
  const SplitStream all(file.tokens(), {}, Split::train);
  return {std::move(file), all, std::move(rows), draw, order};
}

/// Of joined documents. Throws Error{bad_data} without a sample.
Source stream_source(SourceFile source, SplitRule rule, Split split, DrawRule draw,
                     std::int64_t order) {
  TokenFile& file = source.file;
  const SplitStream stream(file.tokens(), rule, split);
  require(source.weight == 0 || stream.tokens() > draw.seq_length, ExitCode::bad_data,
          file.path().string() + ": its " + name_of(split) + " split has " +
              std::to_string(stream.tokens()) + " of the file's " + std::to_string(file.tokens()) +
              " tokens; seq_length " + std::to_string(draw.seq_length) + " needs at least " +
              std::to_string(draw.seq_length + 1));
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
  std::int64_t end = -1;       // position after the part before
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
