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

HostCopies::HostCopies(const StagePlan& stage, const Buffers& buffers) : stage_(stage) {
  for (const UnitRange& range : stage.units) units_ = std::max(units_, range.end);
  const ActivationSlots& slots = stage.activation_slots;
  moved_.resize(static_cast<std::size_t>(units_ * slots.views()));
  for (std::size_t row = 0; row < stage.activations.size(); ++row) {
    const ActivationSpec& spec = stage.activations[row];
    if (spec.storage != Storage::host) continue;
    const std::string own = spec.name.substr(std::string(host_prefix).size());
    const Places places = places_of(spec.name, buffers.contains(first_prefix + own));
    for (int view = 0; view < slots.views(); ++view) {
      if (!slots.has(row, view)) continue;
      Moved& moved = at(moved_, view * units_ + spec.unit);
      const Tensor host = buffers.at(view, spec.name);
      add_copy(moved.out, host, buffers.at(view, places.first), padded_bytes(spec));
      add_copy(moved.back, buffers.at(view, places.later), host, padded_bytes(spec));
    }
    if (!queue_) {
      queue_ = std::make_unique<Stream>(buffers.device(), "host copies", Stream::Mode::queued);
    }
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
