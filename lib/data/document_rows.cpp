#include "data/document_rows.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/error.h"

namespace trainctl {

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
  require(file.format() == TokenFormat::megatron, ExitCode::bad_data,
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
    if (length < 2) continue;  // no label
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

}  // namespace trainctl
