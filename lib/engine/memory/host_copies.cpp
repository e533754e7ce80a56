#include "engine/memory/host_copies.h"

#include <algorithm>
#include <cstddef>

#include "base/at.h"

namespace trainctl {

namespace {

const std::byte* end_of(const Tensor& x) { return static_cast<std::byte*>(x.data) + x.bytes(); }

}  // namespace

HostCopies::HostCopies(const StagePlan& stage, const Buffers& buffers)
    : stage_(stage), buffers_(buffers) {
  for (const UnitRange& range : stage.units) units_ = std::max(units_, range.end);
  const int views = stage.activation_slots.views();
  moved_.resize(static_cast<std::size_t>(units_ * views));
  for (int view = 0; view < views; ++view) place(view);
  const bool copies =
      std::ranges::any_of(moved_, [](const Moved& moved) { return !moved.out.empty(); });
  if (copies) {
    queue_ = std::make_unique<Stream>(buffers.device(), "host copies", Stream::Mode::queued);
  }
}

void HostCopies::place(int view) {
  for (int unit = 0; unit < units_; ++unit) {
    Moved& moved = at(moved_, view * units_ + unit);
    moved.out.clear();
    moved.back.clear();
  }
  for (const RowCopies& row : stage_.declared.host_rows) {
    if (!stage_.activation_slots.has(static_cast<std::size_t>(row.host), view)) continue;
    ActivationSpec spec = at(stage_.activations, row.host);
    Moved& moved = at(moved_, view * units_ + spec.unit);
    const Tensor host = buffers_.at(view, row.host);
    spec.shape = host.shape;
    add_copy(moved.out, host, buffers_.at(view, row.first), padded_bytes(spec));
    add_copy(moved.back, buffers_.at(view, row.later), host, padded_bytes(spec));
  }
}

/// Rows that lie side by side in both places are copied at once. `bytes`: with what pads them.
void HostCopies::add_copy(std::vector<Copy>& copies, const Tensor& to, const Tensor& from,
                          std::int64_t bytes) {
  const bool joins = !copies.empty() && end_of(copies.back().to) == to.data &&
                     end_of(copies.back().from) == from.data;
  if (joins) {
    copies.back().to.shape[0] += bytes;
    copies.back().from.shape[0] += bytes;
    return;
  }
  const auto whole = [bytes](const Tensor& x) {
    return Tensor{x.data, Shape{bytes}, DType::u8, x.device};
  };
  copies.push_back({whole(to), whole(from)});
}

HostCopies::Moved& HostCopies::moved(const Action& row) {
  return at(moved_, at(stage_.activation_slots.view_of, row.microbatch) * units_ + row.begin);
}

void HostCopies::start(const Action& row, const Stream& compute) {
  Moved& unit = moved(row);
  const bool out = row.kind == ActionKind::offload;
  queue_->wait(compute.record());
  for (const Copy& copy : out ? unit.out : unit.back) queue_->copy(copy.to, copy.from);
  (out ? unit.left : unit.came) = queue_->record();
}

void HostCopies::wait(const Action& row, Stream& compute) {
  const Moved& unit = moved(row);
  compute.wait(row.kind == ActionKind::wait_offload ? unit.left : unit.came);
}

}  // namespace trainctl
