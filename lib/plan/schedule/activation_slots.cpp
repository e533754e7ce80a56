#include "plan/schedule/activation_slots.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "base/at.h"
#include "base/integers.h"

namespace trainctl {

namespace {

constexpr std::int64_t row_alignment = 64;  // in bytes, as in device/slab.h
constexpr std::size_t moments = static_cast<std::size_t>(Moment::weight) + 1;

/// The first and the last time of an event.
struct Span {
  int first = -1, last = -1;
  void note(int time) {
    if (first < 0) first = time;
    last = time;
  }
};

/// The time of each moment of each unit and micro-batch. A row takes one time for each of its
/// units. Messages that are posted together are awaited together and take one. A chunk without
/// units counts as one unit.
class Times {
 public:
  Times(std::span<const Action> actions, const ScheduleInput& input) : input_(input) {
    for (const UnitRange& range : input.units) {
      first_.push_back(places_);
      places_ += std::max(1, range.end - range.begin);
    }
    spans_.resize(static_cast<std::size_t>(places_ * input.microbatches));
    int time = 0;
    for (std::size_t row = 0; row < actions.size(); ++row) {
      const Action& action = actions[row];
      const bool batched = input.messages.mode == MessageMode::batched && row > 0;
      if (!batched || !is_message(action.kind) || !is_message(actions[row - 1].kind)) ++time;
      note(action, time);
      time += std::max(1, action.end - action.begin) - 1;
    }
    end_ = time + 1;
    for (int chunk = 0; chunk < input.chunks(); ++chunk) {
      for (int m = 0; m < input.microbatches; ++m) complete(chunk, m);
    }
  }

  /// An upper bound, above all times.
  int end() const { return end_; }

  /// The last time at which the row of a micro-batch is read. In a forward-only schedule, the
  /// chunk's data is in use until F of its last unit.
  int end_of(const ActivationSpec& row, int microbatch) const {
    const bool data = input_.forward_only && row.storage == Storage::batch && row.unit >= 0;
    const int unit = data ? at(input_.units, row.chunk).end - 1 : row.unit;
    return of(row.chunk, unit, microbatch, row.until).last;
  }

  const Span& of(int chunk, int unit, int microbatch, Moment moment) const {
    const int place = unit < 0 ? 0 : unit - at(input_.units, chunk).begin;
    return at(spans_[index(chunk, place, microbatch)], moment);
  }

 private:
  using Spans = std::array<Span, moments>;

  std::size_t index(int chunk, int place, int microbatch) const {
    return static_cast<std::size_t>((at(first_, chunk) + place) * input_.microbatches + microbatch);
  }
  int width(int chunk) const {
    const UnitRange& range = at(input_.units, chunk);
    return std::max(1, range.end - range.begin);
  }
  Span& span(int chunk, int place, int microbatch, Moment moment) {
    return at(spans_[index(chunk, place, microbatch)], moment);
  }

  void note(const Action& row, int time) {
    const auto note_units = [&](Moment moment) {
      const int base = at(input_.units, row.chunk).begin;
      if (row.begin == row.end) span(row.chunk, 0, row.microbatch, moment).note(time);
      for (int unit = row.begin; unit < row.end; ++unit) {
        const bool up = moment == Moment::forward || input_.forward_only;
        const int step = up ? unit - row.begin : row.end - 1 - unit;
        span(row.chunk, unit - base, row.microbatch, moment).note(time + step);
      }
    };
    switch (row.kind) {
      case ActionKind::fetch:
        for (int place = 0; place < width(row.chunk); ++place) {
          span(row.chunk, place, row.microbatch, Moment::fetch).note(time);
        }
        break;
      case ActionKind::receive_forward:
        span(row.chunk, 0, row.microbatch, Moment::input).note(time);
        break;
      case ActionKind::receive_backward:
        span(row.chunk, width(row.chunk) - 1, row.microbatch, Moment::gradient).note(time);
        break;
      case ActionKind::forward:
        // A forward-only schedule has no B, so rows that live until B end here.
        if (input_.forward_only) note_units(Moment::backward);
        return note_units(Moment::forward);
      case ActionKind::offload:
      case ActionKind::wait_offload: return note_units(Moment::offload);
      case ActionKind::reload:
      case ActionKind::wait_reload: return note_units(Moment::reload);
      case ActionKind::repeat: return note_units(Moment::repeat);
      case ActionKind::backward_input: return note_units(Moment::backward);
      case ActionKind::backward_weight: return note_units(Moment::weight);
      default: break;
    }
  }

  /// Sets the times of inputs and gradients that come from another chunk of this rank.
  void complete(int chunk, int m) {
    const ChunkPlaces places = input_.places();
    for (int place = 0; place < width(chunk); ++place) {
      Span& input = span(chunk, place, m, Moment::input);
      if (place > 0) input = span(chunk, place - 1, m, Moment::forward);
      if (input.first < 0) {
        const auto from = places.before(input_.stage, chunk);
        input = from ? span(from->chunk, width(from->chunk) - 1, m, Moment::forward)
                     : span(chunk, place, m, Moment::forward);
      }
      Span& gradient = span(chunk, place, m, Moment::gradient);
      if (place + 1 < width(chunk)) gradient = span(chunk, place + 1, m, Moment::backward);
      if (gradient.first < 0) {
        const auto from = places.after(input_.stage, chunk);
        gradient = from ? span(from->chunk, 0, m, Moment::backward)
                        : span(chunk, place, m, Moment::backward);
      }
      Span& weight = span(chunk, place, m, Moment::weight);
      if (weight.first < 0) weight = span(chunk, place, m, Moment::backward);
    }
  }

  const ScheduleInput& input_;
  std::vector<int> first_;  // index of each chunk's first unit in the stage
  int places_ = 0, end_ = 0;
  std::vector<Spans> spans_;
};

/// A group's use of a slot for one micro-batch.
struct Stay {
  int from = 0, until = 0, group = 0, microbatch = 0;
};

class Assignment {
 public:
  Assignment(std::span<const ActivationSpec> table, std::span<const Action> actions,
             const ScheduleInput& input)
      : table_(table), input_(input), times_(actions, input) {}

  ActivationSlots run() {
    gather();
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) fill(pool);
    find_views();
    return std::move(result_);
  }

  SlotBytes count() {
    gather();
    SlotBytes bytes;
    for (std::size_t pool = 0; pool < pools_.size(); ++pool) {
      const ActivationSlots::Pool& size = result_.pools[pool];
      (size.on_host ? bytes.host : bytes.device) += size.bytes * max_at_once(pools_[pool]);
    }
    return bytes;
  }

  std::int64_t count_alive(const Action& pass) {
    gather();
    const UnitRange& units = at(input_.units, pass.chunk);
    const int last = units.empty() ? -1 : units.end - 1;
    const int now = times_.of(pass.chunk, last, pass.microbatch, Moment::forward).last;
    std::int64_t bytes = 0;
    for (const Group& group : groups_) {
      const Storage kind = pool_kind(group.life->storage);
      if (kind == Storage::shared) bytes += group.bytes;
      if (kind != Storage::forward) continue;
      each_stay(group, [&](int from, int until, int) {
        if (from <= now && now <= until) bytes += group.bytes;
      });
    }
    return bytes;
  }

 private:
  struct Group {
    const ActivationSpec* life = nullptr;  // first row, which defines the lifetime
    std::int64_t bytes = 0;
    std::vector<int> slot;    // slot by micro-batch
    std::vector<int> before;  // slots that the group had for other micro-batches
  };
  struct Pool {
    Storage kind = Storage::forward;  // see pool_kind()
    std::vector<int> groups;
  };
  /// The slots of one pool during assignment.
  struct Taken {
    std::vector<Stay> holders;  // last stay by slot
    std::vector<int> free;      // free slots; the last entry was freed last
    int take(const std::vector<int>& before);
  };

  void gather() {
    for (std::size_t row = 0; row < table_.size(); ++row) place_row(row);
    for (std::size_t group = 0; group < groups_.size(); ++group) join_pool(group);
  }

  void place_row(std::size_t row) {
    const ActivationSpec& spec = table_[row];
    const auto key =
        std::tuple(spec.storage, spec.chunk, spec.unit, spec.from, spec.until, spec.kind);
    const auto [found, fresh] = group_at_.try_emplace(key, static_cast<int>(groups_.size()));
    if (fresh) groups_.push_back({&spec, 0, {}, {}});
    Group& group = at(groups_, found->second);
    result_.rows.push_back({found->second, group.bytes});
    group.bytes += padded_bytes(spec);
  }

  /// The key of storages whose groups share pools.
  static Storage pool_kind(Storage storage) {
    const bool apart = storage == Storage::shared || storage == Storage::repeated ||
                       storage == Storage::staged || storage == Storage::host ||
                       storage == Storage::counted || storage == Storage::exchanged;
    return apart ? storage : Storage::forward;
  }

  void join_pool(std::size_t index) {
    const Group& group = groups_[index];
    const Storage kind = pool_kind(group.life->storage);
    const bool one_size = kind == Storage::repeated || kind == Storage::staged;
    const auto key = std::pair(kind, one_size ? 0 : group.bytes);
    const auto [found, fresh] = pool_at_.try_emplace(key, static_cast<int>(pools_.size()));
    if (fresh) {
      pools_.push_back({kind, {}});
      result_.pools.push_back({0, 0, 0, group.life->on_host()});
    }
    std::int64_t& bytes = at(result_.pools, found->second).bytes;
    bytes = std::max(bytes, group.bytes);
    at(pools_, found->second).groups.push_back(static_cast<int>(index));
    result_.groups.push_back({found->second, {}});
  }

  void fill(std::size_t index) {
    const Pool& pool = pools_[index];
    ActivationSlots::Pool& size = result_.pools[index];
    if (pool.kind == Storage::shared) {
      size.slots = 1;
      for (const int index_of : pool.groups) {
        at(groups_, index_of).slot.assign(static_cast<std::size_t>(input_.microbatches), 0);
      }
    } else {
      size.slots = colour(pool);
    }
    std::int64_t& total = size.on_host ? result_.host_bytes : result_.bytes;
    size.begin = total;
    total += size.bytes * size.slots;
  }

  /// Calls `stays(from, until, microbatch)` for each use of a slot by the group.
  template <class Stays>
  void each_stay(const Group& group, const Stays& stays) const {
    const ActivationSpec& life = *group.life;
    for (int m = 0; m < input_.microbatches; ++m) {
      if (!concerns(life, m)) continue;
      const int from = times_.of(life.chunk, life.unit, m, life.from).first;
      stays(from, std::max(from, times_.end_of(life, m)), m);
    }
  }

  /// The maximum number of concurrent stays in a pool.
  int max_at_once(const Pool& pool) const {
    if (pool.kind == Storage::shared) return 1;
    // By time, starting before the first: stays that begin, less those that ended just before.
    std::vector<int> more(static_cast<std::size_t>(times_.end()) + 2);
    for (const int index : pool.groups) {
      each_stay(at(groups_, index), [&](int from, int until, int) {
        ++at(more, from + 1);
        --at(more, until + 2);
      });
    }
    int now = 0, most = 0;
    for (const int one : more) {
      now += one;
      most = std::max(most, now);
    }
    return most;
  }

  /// Assigns slots by interval colouring. A slot is added only if none is free, so a pool has the
  /// least possible number of slots.
  int colour(const Pool& pool) {
    std::vector<Stay> stays;
    for (const int index : pool.groups) {
      Group& group = at(groups_, index);
      group.slot.assign(static_cast<std::size_t>(input_.microbatches), -1);
      each_stay(group, [&](int from, int until, int m) {
        stays.push_back({from, until, index, m});
      });
    }
    std::ranges::stable_sort(stays, {}, &Stay::from);
    using Ending = std::pair<int, int>;  // last row, slot
    std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings;
    Taken taken;
    for (const Stay& stay : stays) {
      while (!endings.empty() && endings.top().first < stay.from) {
        taken.free.push_back(endings.top().second);
        endings.pop();
      }
      Group& group = at(groups_, stay.group);
      const int slot = taken.take(group.before);
      at(taken.holders, slot) = stay;
      at(group.slot, stay.microbatch) = slot;
      if (std::find(group.before.begin(), group.before.end(), slot) == group.before.end()) {
        group.before.push_back(slot);
      }
      endings.emplace(stay.until, slot);
    }
    for (const Stay& holder : taken.holders) {
      if (holder.microbatch + 1 == input_.microbatches) {
        at(result_.groups, holder.group).lasts = true;
      }
    }
    return static_cast<int>(taken.holders.size());
  }

  /// Whether micro-batch `m` has rows of the kind of `row`.
  bool concerns(const ActivationSpec& row, int m) const {
    if (row.kind == RowKind::all) return true;
    return input_.forms.in_partial(row.chunk, m) == (row.kind == RowKind::partial);
  }

  void find_views() {
    std::map<std::vector<int>, int> seen;
    for (int m = 0; m < input_.microbatches; ++m) {
      std::vector<int> slots;
      for (const Group& group : groups_) slots.push_back(at(group.slot, m));
      const auto [found, fresh] = seen.try_emplace(slots, static_cast<int>(seen.size()));
      result_.view_of.push_back(found->second);
      for (std::size_t i = 0; fresh && i < slots.size(); ++i) {
        result_.groups[i].slot.push_back(slots[i]);
      }
    }
  }

  std::span<const ActivationSpec> table_;
  const ScheduleInput& input_;
  Times times_;
  std::vector<Group> groups_;
  std::vector<Pool> pools_;
  std::map<std::tuple<Storage, int, int, Moment, Moment, RowKind>, int> group_at_;
  std::map<std::pair<Storage, std::int64_t>, int> pool_at_;
  ActivationSlots result_;
};

/// Takes a free slot that the group has had before, so that micro-batches share views; else the
/// slot that was freed last, which leaves older contents intact; else a new slot.
int Assignment::Taken::take(const std::vector<int>& before) {
  for (const int slot : before) {
    const auto found = std::find(free.begin(), free.end(), slot);
    if (found == free.end()) continue;
    free.erase(found);
    return slot;
  }
  if (free.empty()) {
    holders.emplace_back();
    return static_cast<int>(holders.size()) - 1;
  }
  const int slot = free.back();
  free.pop_back();
  return slot;
}

}  // namespace

int ActivationSlots::views() const {
  return view_of.empty() ? 0 : *std::max_element(view_of.begin(), view_of.end()) + 1;
}

bool ActivationSlots::has(std::size_t row, int view) const {
  return at(at(groups, rows[row].group).slot, view) >= 0;
}

bool ActivationSlots::on_host(std::size_t row) const {
  return at(pools, at(groups, rows[row].group).pool).on_host;
}

std::int64_t ActivationSlots::place(std::size_t row, int view) const {
  const Row& placed = rows[row];
  const Group& group = at(groups, placed.group);
  const Pool& pool = at(pools, group.pool);
  return pool.begin + at(group.slot, view) * pool.bytes + placed.begin;
}

bool ActivationSlots::lasts(std::size_t row) const { return at(groups, rows[row].group).lasts; }

ActivationSlots assign_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                             const ScheduleInput& input) {
  return Assignment(table, actions, input).run();
}

SlotBytes count_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                      const ScheduleInput& input) {
  return Assignment(table, actions, input).count();
}

std::int64_t min_slots(std::span<const ActivationSpec> table, std::span<const Action> actions,
                       const ScheduleInput& input, const Action& forward) {
  return Assignment(table, actions, input).count_alive(forward);
}

std::int64_t padded_bytes(const ActivationSpec& row) {
  return round_up(row.shape.numel() * size_of(row.dtype), row_alignment);
}

}  // namespace trainctl
