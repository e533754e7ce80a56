#include "data/dataset.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "data/blend.h"
#include "data/permutation.h"
#include "data/split_stream.h"

namespace trainctl {

namespace {

struct Source {
  TokenFile file;
  SplitStream stream;
  std::int64_t first_window;  // number of its first window among all sources'
  std::int64_t windows;
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
  std::int64_t start_of(std::size_t source, std::int64_t sample) const;
};

Dataset::Dataset(std::vector<SourceFile> sources, SplitRule rule, Split split,
                 std::int64_t seq_length, std::uint64_t seed, bool shuffle)
    : impl_(new Impl{{}, Blend(weights_of(sources)), seq_length, seed, shuffle}) {
  assert(seq_length > 0);
  const char* name = split == Split::train ? "train" : "validation";
  for (SourceFile& source : sources) {
    const SplitStream stream(source.file.tokens(), rule, split);
    require(source.weight == 0 || stream.tokens() > seq_length, ExitCode::bad_data,
            source.file.path().string() + ": its " + name + " split has " +
                std::to_string(stream.tokens()) + " of the file's " +
                std::to_string(source.file.tokens()) + " tokens; seq_length " +
                std::to_string(seq_length) + " needs at least " + std::to_string(seq_length + 1));
    const std::int64_t windows = stream.windows(seq_length);
    impl_->sources.push_back({std::move(source.file), stream, impl_->windows, windows});
    impl_->tokens += stream.tokens();
    impl_->windows += windows;
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
    const SplitStream::Place place = source.stream.locate(window.first + done);
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

/// Stream position of sample `sample` of a source.
std::int64_t Dataset::Impl::start_of(std::size_t source, std::int64_t sample) const {
  const std::int64_t last = sources[source].stream.tokens() - 1 - seq_length;
  const std::int64_t per_epoch = last / seq_length + 1;
  const std::int64_t epoch = sample / per_epoch;
  const std::int64_t place = sample % per_epoch;
  if (!shuffle) return place * seq_length;
  constexpr std::uint64_t streams_of_data = 0x6461746100000000ULL;
  const Philox random(seed, streams_of_data + source);
  const auto draw = static_cast<std::uint64_t>(2 * epoch);
  const std::uint64_t key = random.bits64(draw);
  const std::uint64_t phase = random.bits64(draw + 1) % static_cast<std::uint64_t>(seq_length);
  const auto window = static_cast<std::int64_t>(
      permuted(static_cast<std::uint64_t>(place), static_cast<std::uint64_t>(per_epoch), key));
  return std::min(window * seq_length + static_cast<std::int64_t>(phase), last);
}

void Dataset::train_sample(std::int64_t index, Sample& out) const {
  assert(index >= 0);
  const Blend::Pick pick = impl_->blend.pick(index);
  const std::int64_t start = impl_->start_of(pick.source, pick.sample);
  impl_->fill(impl_->sources[pick.source], {start, impl_->seq_length}, out);
}

void Dataset::window(std::int64_t index, Sample& out) const {
  assert(index >= 0 && index < impl_->windows);
  const auto after = std::upper_bound(
      impl_->sources.begin(), impl_->sources.end(), index,
      [](std::int64_t wanted, const Source& source) { return wanted < source.first_window; });
  const Source& source = *(after - 1);
  impl_->fill(source, source.stream.window(index - source.first_window, impl_->seq_length), out);
}

}  // namespace trainctl
