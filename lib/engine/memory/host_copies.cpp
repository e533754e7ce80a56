#include "engine/memory/host_copies.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/at.h"

namespace trainctl {

namespace {

const std::byte* end_of(const Tensor& x) { return static_cast<std::byte*>(x.data) + x.bytes(); }

/// The rows of F, on the host and from the copy back on, of the name of the second.
struct Places {
  std::string first, later;
};

/// A layer's input is also what the unit below writes, and has no name of its own in F.
Places places_of(const std::string& host_name, bool has_first) {
  const std::string name = host_name.substr(std::string(host_prefix).size());
  return has_first ? Places{first_prefix + name, name} : Places{name, name + "_again"};
}

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
  const ActivationSlots& slots = stage_.activation_slots;
  for (std::size_t row = 0; row < stage_.activations.size(); ++row) {
    ActivationSpec spec = stage_.activations[row];
    if (spec.storage != Storage::host || !slots.has(row, view)) continue;
    const std::string own = spec.name.substr(std::string(host_prefix).size());
    const Places places = places_of(spec.name, buffers_.contains(first_prefix + own));
    Moved& moved = at(moved_, view * units_ + spec.unit);
    const Tensor host = buffers_.at(view, spec.name);
    spec.shape = host.shape;
    add_copy(moved.out, host, buffers_.at(view, places.first), padded_bytes(spec));
    add_copy(moved.back, buffers_.at(view, places.later), host, padded_bytes(spec));
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
