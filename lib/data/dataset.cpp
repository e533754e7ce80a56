#include "data/dataset.h"

#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "data/blend.h"
#include "data/document_rows.h"
#include "data/permutation.h"
#include "data/split_stream.h"

namespace trainctl {

namespace {

struct Source {
  TokenFile file;
  SplitStream stream;
  std::optional<DocumentRows> rows;  // instead, where documents are not joined
  std::int64_t first_window;         // number of its first window among all sources'
  std::int64_t windows;

  /// As SplitStream::locate; a row's position is its token in the file.
  SplitStream::Place locate(std::int64_t position) const {
    if (rows) return {position, file.tokens() - position};
    return stream.locate(position);
  }
  SplitStream::Window window(std::int64_t index, std::int64_t seq_length) const {
    return rows ? rows->row(index) : stream.window(index, seq_length);
  }
};

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
  Blend blend;
  std::int64_t seq_length;
  std::uint64_t seed;
  bool shuffle;
  std::int64_t tokens = 0;
  std::int64_t windows = 0;

  void fill(const Source& source, SplitStream::Window window, Sample& out) const;
  SplitStream::Window train_window(std::size_t source, std::int64_t sample) const;
};

namespace {

/// Whose rows are documents. Throws Error{bad_data} without a row.
Source document_source(TokenFile file, double weight, SplitRule rule, Split split,
                       std::int64_t seq_length) {
  DocumentRows rows(file, rule, split, seq_length);
  const char* name = split == Split::train ? "train" : "validation";
  require(weight == 0 || rows.rows() > 0, ExitCode::bad_data,
          file.path().string() + ": its " + name + " split has no document of 2 tokens or more; " +
              "the file has " + std::to_string(file.documents()) + " documents");
  const std::int64_t count = rows.rows();
  const SplitStream all(file.tokens(), {}, Split::train);
  return {std::move(file), all, std::move(rows), 0, count};
}

/// Of joined documents. Throws Error{bad_data} without a sample.
Source stream_source(TokenFile file, double weight, SplitRule rule, Split split,
                     std::int64_t seq_length) {
  const char* name = split == Split::train ? "train" : "validation";
  const SplitStream stream(file.tokens(), rule, split);
  require(weight == 0 || stream.tokens() > seq_length, ExitCode::bad_data,
          file.path().string() + ": its " + name + " split has " + std::to_string(stream.tokens()) +
              " of the file's " + std::to_string(file.tokens()) + " tokens; seq_length " +
              std::to_string(seq_length) + " needs at least " + std::to_string(seq_length + 1));
  return {std::move(file), stream, std::nullopt, 0, stream.windows(seq_length)};
}

}  // namespace

Dataset::Dataset(std::vector<SourceFile> sources, SplitRule rule, Split split,
                 std::int64_t seq_length, std::uint64_t seed, bool shuffle)
    : impl_(new Impl{{}, Blend(weights_of(sources)), seq_length, seed, shuffle}) {
  assert(seq_length > 0);
  const auto open = rule.documents ? document_source : stream_source;
  for (SourceFile& file : sources) {
    Source source = open(std::move(file.file), file.weight, rule, split, seq_length);
    source.first_window = impl_->windows;
    impl_->tokens += source.rows ? source.rows->tokens() : source.stream.tokens();
    impl_->windows += source.windows;
    impl_->sources.push_back(std::move(source));
  }
}

Dataset::~Dataset() = default;
Dataset::Dataset(Dataset&&) noexcept = default;
Dataset& Dataset::operator=(Dataset&&) noexcept = default;

std::int64_t Dataset::seq_length() const { return impl_->seq_length; }
std::int64_t Dataset::tokens() const { return impl_->tokens; }
std::int64_t Dataset::windows() const { return impl_->windows; }

void Dataset::Impl::fill(const Source& source, SplitStream::Window window, Sample& out) const {
  out.tokens.assign(static_cast<std::size_t>(seq_length + 1), 0);
  out.document.assign(static_cast<std::size_t>(seq_length), 0);
  out.scored = window.scored;
  std::int32_t number = 0;
  std::int64_t previous = -1;
  for (std::int64_t done = 0; done <= window.scored;) {
    const SplitStream::Place place = source.locate(window.first + done);
    const auto count = static_cast<std::size_t>(std::min(place.follow, window.scored + 1 - done));
    const auto at = static_cast<std::size_t>(done);
    source.file.read(place.token, std::span(out.tokens).subspan(at, count));
    const auto inputs = std::span(out.document).subspan(at);
    number_documents(source.file, place.token, inputs.first(std::min(count, inputs.size())), number,
                     previous);
    done += static_cast<std::int64_t>(count);
  }
  std::fill(out.document.begin() + window.scored, out.document.end(), number);
}

/// Sample `sample` of a source.
SplitStream::Window Dataset::Impl::train_window(std::size_t source, std::int64_t sample) const {
  const Source& from = sources[source];
  const std::int64_t last = from.stream.tokens() - 1 - seq_length;
  const std::int64_t per_epoch = from.rows ? from.windows : last / seq_length + 1;
  const std::int64_t epoch = sample / per_epoch;
  const std::int64_t place = sample % per_epoch;
  constexpr std::uint64_t streams_of_data = 0x6461746100000000ULL;
  const Philox random(seed, streams_of_data + source);
  const auto draw = static_cast<std::uint64_t>(2 * epoch);
  const std::uint64_t key = random.bits64(draw);
  const auto drawn = static_cast<std::int64_t>(
      permuted(static_cast<std::uint64_t>(place), static_cast<std::uint64_t>(per_epoch), key));
  const std::int64_t window = shuffle ? drawn : place;
  if (from.rows) return from.rows->row(window);
  const std::uint64_t phase = random.bits64(draw + 1) % static_cast<std::uint64_t>(seq_length);
  const std::int64_t start = window * seq_length + (shuffle ? static_cast<std::int64_t>(phase) : 0);
  return {std::min(start, last), seq_length};
}

void Dataset::train_sample(std::int64_t index, Sample& out) const {
  assert(index >= 0);
  const Blend::Pick pick = impl_->blend.pick(index);
  impl_->fill(impl_->sources[pick.source], impl_->train_window(pick.source, pick.sample), out);
}

void Dataset::window(std::int64_t index, Sample& out) const {
  assert(index >= 0 && index < impl_->windows);
  const auto after = std::upper_bound(
      impl_->sources.begin(), impl_->sources.end(), index,
      [](std::int64_t wanted, const Source& source) { return wanted < source.first_window; });
  const Source& source = *(after - 1);
  impl_->fill(source, source.window(index - source.first_window, impl_->seq_length), out);
}

}  // namespace trainctl
