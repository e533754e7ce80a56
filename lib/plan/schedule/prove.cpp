#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/at.h"
#include "base/text.h"
#include "plan/schedule/action.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

namespace {

using Fail = std::function<void(const std::string& what)>;  // about the current row

// The part of a schedule's proof about passes in legs (Action::leg). For rows being sent, a rank
// has one buffer for F and one for R and B.
class ExchangeProof {
 public:
  explicit ExchangeProof(Fail fail) : fail_(std::move(fail)) {}

  /// Checks an F, R or B row; returns whether its pass is complete.
  bool completes(const Action& row) {
    Open& open = open_[row.kind == ActionKind::forward ? 0 : 1];
    if (row.leg == ExchangePhase::whole || row.leg == ExchangePhase::out) {
      if (open.any) fail_("begins before the next leg of " + to_string(open.last));
    } else {
      Action before = row;
      before.leg = row.leg == ExchangePhase::work ? ExchangePhase::out : ExchangePhase::work;
      if (!open.any || !(open.last == before)) fail_("must come after " + to_string(before));
    }
    if (row.leg != ExchangePhase::whole && row.end != row.begin + 1) fail_("a leg is of one unit");
    open = {row.sends_rows(), row};
    return !open.any;
  }

  /// Called after the last row.
  void finish() const {
    for (const Open& open : open_) {
      if (open.any) fail_(formatted("the next leg of {} never comes", to_string(open.last)));
    }
  }

 private:
  struct Open {
    bool any = false;
    Action last;  // last leg of the open pass
  };

  Fail fail_;
  Open open_[2];  // open pass: F; R or B
};

constexpr int none = -1;

void make_room(std::vector<int>& slots, int slot) {
  if (slot >= std::ssize(slots)) slots.resize(static_cast<std::size_t>(slot) + 1, none);
}

// The part of the proof of one rank's rows about shared memory: parameters are present when they
// are read, and gradients are not added to a slot that is in use by another bucket or sum.
class MoveProof {
 public:
  /// Keeps references to `buckets` and `blocks`.
  MoveProof(const std::vector<BucketSum>& buckets, const std::vector<GatherBlock>& blocks,
            Fail fail)
      : buckets_(buckets),
        blocks_(blocks),
        fail_(std::move(fail)),
        gathered_(blocks.size(), 0),
        arrived_(blocks.size(), 0),
        freed_(blocks.size(), 0),
        reduced_(buckets.size(), 0) {
    for (const GatherBlock& block : blocks) make_room(block_in_, block.slot);
    for (const BucketSum& sum : buckets) {
      make_room(made_in_, sum.slot);
      make_room(sum_in_, sum.slot);
    }
  }

  /// Checks the next row, whose bucket or block must exist.
  void check(const Action& row) {
    if (is_pass(row.kind)) {
      check_read(row);
      add_gradients(row);
    }
    switch (row.kind) {
      case ActionKind::gather: return gather(row);
      case ActionKind::wait_gather: return wait_gather(row);
      case ActionKind::free: return free(row);
      case ActionKind::reduce: return reduce(row);
      case ActionKind::wait_reduce: return wait_reduce(row);
      default: return;
    }
  }

  /// Called at the step.
  void finish() {
    for (const int bucket : made_in_) {
      if (bucket == none) continue;
      fail_(formatted("the last gradients of bucket {} are never reduced", bucket));
    }
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      const std::string name = formatted("gather {}", block);
      if (gathered_[block] == 0 && !blocks_[block].freed) {
        fail_(name + " is missing");
      } else if (arrived_[block] < gathered_[block]) {
        fail_("nobody waited for " + name);
      } else if (blocks_[block].freed && freed_[block] < gathered_[block]) {
        fail_(formatted("block {} is never freed", block));
      }
    }
  }

 private:
  /// A block must be awaited and freed before it is gathered once more.
  void gather(const Action& row) {
    int& gathered = at(gathered_, row.bucket);
    if (gathered > at(freed_, row.bucket)) fail_("has been gathered before");
    check_visit(row, gathered++);
    const int slot = at(blocks_, row.bucket).slot;
    if (slot == none) return;
    int& held = at(block_in_, slot);
    if (held != none) fail_(formatted("its slot holds block {}", held));
    held = row.bucket;
  }

  void wait_gather(const Action& row) {
    const int gathered = at(gathered_, row.bucket);
    if (gathered == at(freed_, row.bucket)) return fail_("is not being gathered");
    at(arrived_, row.bucket) = gathered;
    check_visit(row, gathered - 1);
  }

  void free(const Action& row) {
    const GatherBlock& block = at(blocks_, row.bucket);
    const int gathered = at(gathered_, row.bucket);
    if (!block.freed) fail_("the block stays for the whole step");
    if (gathered == at(freed_, row.bucket)) return fail_("has not been gathered");
    if (at(arrived_, row.bucket) < gathered) fail_("is still being gathered");
    at(freed_, row.bucket) = gathered;
    check_visit(row, gathered - 1);
    if (block.slot != none) at(block_in_, block.slot) = none;
  }

  void check_read(const Action& row) {
    for (std::size_t block = 0; block < blocks_.size(); ++block) {
      if (arrived_[block] > freed_[block] || !reads(row, blocks_[block])) continue;
      const bool over = freed_[block] > 0 && freed_[block] == gathered_[block];
      fail_(over ? formatted("reads parameters of block {}, which is freed", block)
                 : formatted("reads parameters before wait_gather {}", block));
    }
  }

  /// Checks the slots of gradients that are summed repeatedly.
  void add_gradients(const Action& row) {
    if (made_in_.empty()) return;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      const BucketSum& sum = buckets_[bucket];
      if (sum.slot == none || !sum.adds(row)) continue;
      const int summed = at(sum_in_, sum.slot);
      if (summed != none) {
        fail_(formatted("adds to gradients where the sum of bucket {} is under way", summed));
      }
      int& made = at(made_in_, sum.slot);
      if (made != none && made != static_cast<int>(bucket)) {
        fail_(formatted("adds to gradients where those of bucket {} are", made));
      }
      made = static_cast<int>(bucket);
    }
  }

  void reduce(const Action& row) {
    check_visit(row, at(reduced_, row.bucket)++);
    const int slot = at(buckets_, row.bucket).slot;
    if (slot == none) return;
    if (at(made_in_, slot) != row.bucket)
      fail_("sums a slot that holds no gradients of the bucket");
    at(made_in_, slot) = none;
    at(sum_in_, slot) = row.bucket;
  }

  void wait_reduce(const Action& row) {
    if (at(buckets_, row.bucket).reduced) check_visit(row, at(reduced_, row.bucket) - 1);
    const int slot = at(buckets_, row.bucket).slot;
    if (slot != none && at(sum_in_, slot) == row.bucket) at(sum_in_, slot) = none;
  }
  void check_visit(const Action& row, int visit) {
    if (row.visit != visit) fail_(formatted("should be visit {}", visit));
  }

  const std::vector<BucketSum>& buckets_;
  const std::vector<GatherBlock>& blocks_;
  Fail fail_;
  std::vector<int> gathered_;  // per block: number of gathers
  std::vector<int> arrived_;   // per block: number of awaited gathers
  std::vector<int> freed_;     // per block: number of frees
  std::vector<int> reduced_;   // per bucket: number of sums
  std::vector<int> block_in_;  // per slot of parameters: block that it holds
  std::vector<int> made_in_;   // per slot of gradients: bucket whose gradients are computed
  std::vector<int> sum_in_;    // per slot of gradients: bucket whose sum is unfinished
};

// The part of the proof of one rank's rows about host copies: activations are copied to the host
// after F, and back before they are read.
class CopyProof {
 public:
  /// Keeps a reference to `input`.
  CopyProof(const ScheduleInput& input, Fail fail) : input_(input), fail_(std::move(fail)) {
    int end = 0;
    first_ = input.units.empty() ? 0 : input.units.front().begin;
    for (const UnitRange& range : input.units) {
      first_ = std::min(first_, range.begin);
      end = std::max(end, range.end);
    }
    where_.assign(static_cast<std::size_t>(std::max(0, end - first_) * input.microbatches),
                  Where::nowhere);
  }

  /// Checks the next row, whose chunk, micro-batch and units must be the rank's.
  void check(const Action& row) {
    if (is_pass(row.kind)) {
      for (int unit = row.begin; unit < row.end; ++unit) {
        if (input_.forms.on_host(unit)) pass(row, unit);
      }
    }
    if (is_host_copy(row.kind) && !input_.forms.on_host(row.begin)) {
      return fail_(formatted("unit {} is not kept on the host", row.begin));
    }
    switch (row.kind) {
      case ActionKind::offload:
        return move(row, Where::made, Where::leaving, "must come once, after F");
      case ActionKind::wait_offload:
        return move(row, Where::leaving, Where::away, "no copy to the host is under way");
      case ActionKind::reload:
        return move(row, Where::away, Where::coming, "it is not on the host");
      case ActionKind::wait_reload:
        return move(row, Where::coming, Where::back, "no copy from the host is under way");
      default: return;
    }
  }

  /// Called at the step.
  void finish() {
    const auto under_way = [](Where place) {
      return place == Where::leaving || place == Where::coming;
    };
    if (std::any_of(where_.begin(), where_.end(), under_way))
      fail_("nobody waited for a host copy");
  }

 private:
  /// The state of a unit's activations of one micro-batch.
  enum class Where : std::uint8_t { nowhere, made, leaving, away, coming, back };
  Where& where(int unit, int microbatch) {
    return at(where_, (unit - first_) * input_.microbatches + microbatch);
  }
  void pass(const Action& row, int unit) {
    Where& now = where(unit, row.microbatch);
    if (row.kind == ActionKind::forward) {
      if (runs(row.leg, ExchangePhase::home)) now = Where::made;
    } else if (now != Where::back) {
      fail_(formatted("reads what unit {} keeps on the host before wait_reload", unit));
    }
  }

  void move(const Action& row, Where from, Where to, const char* otherwise) {
    Where& now = where(row.begin, row.microbatch);
    if (now != from) fail_(otherwise);
    now = to;
  }

  const ScheduleInput& input_;
  Fail fail_;
  int first_ = 0;  // first unit of the rank
  std::vector<Where> where_;
};

/// The progress of one chunk and micro-batch on this rank.
struct RankProgress {
  bool fetched = false, received_forward = false, received_backward = false;
  bool waited_forward = false, waited_backward = false;  // only if receives are separate from waits
  bool sent_forward = false, sent_backward = false;
  bool forward_ran = false, backward_ran = false;  // a chunk without units has one row of each
  int forward = 0;                                 // units below this one have run F
  int repeated = 0;      // units from this one up have run R, if necessary
  int backward = 0;      // units from this one up have run B
  int weights_left = 0;  // number of units that have not run W
};

class Proof {
 public:
  Proof(const RankRows& rank, const std::vector<BucketSum>& buckets,
        const std::vector<GatherBlock>& gathers, std::string who,
        std::vector<std::string>& violations)
      : in_(rank.input),
        places_(rank.input.places()),
        rows_(rank.rows),
        buckets_(buckets),
        gathers_(gathers),
        who_(std::move(who)),
        violations_(violations),
        reduced_(buckets.size(), 0),
        shared_(buckets.size(), 0),
        waited_(buckets.size(), 0),
        moves_(buckets, gathers, [this](const std::string& what) { fail(what); }),
        copies_(rank.input, [this](const std::string& what) { fail(what); }),
        legs_([this](const std::string& what) { fail(what); }) {
    const auto microbatches = static_cast<std::size_t>(in_.microbatches);
    for (const UnitRange& range : in_.units) {
      RankProgress fresh;
      fresh.forward = range.begin;
      fresh.repeated = fresh.backward = range.end;
      fresh.weights_left = range.end - range.begin;
      progress_.insert(progress_.end(), microbatches, fresh);
      shift_.push_back(units_ - range.begin);
      units_ += range.end - range.begin;
    }
    weights_left_.assign(static_cast<std::size_t>(units_), in_.microbatches);
    weight_done_.assign(static_cast<std::size_t>(units_) * microbatches, 0);
  }

  void run() {
    for (row_ = 0; row_ < rows_.size(); ++row_) check(rows_[row_]);
    if (in_.forward_only) return finish_forward();
    if (!stepped_) fail("has no step");
  }

 private:
  void fail(const std::string& what) {
    std::string where = who_;
    if (row_ < rows_.size()) where += formatted(" row {}, {}", row_, to_string(rows_[row_]));
    violations_.push_back(formatted("{}: {}", where, what));
  }

  static bool goes_up(ActionKind kind) {
    return names_block(kind) || kind == ActionKind::fetch || kind == ActionKind::forward ||
           kind == ActionKind::receive_forward || kind == ActionKind::wait_forward ||
           kind == ActionKind::send_forward;
  }

  void check(const Action& action) {
    if (stepped_) fail("comes after the step");
    if (in_.forward_only && !goes_up(action.kind)) return fail("is not of a forward pass");
    if (!in_range(action)) return fail("is out of range");
    moves_.check(action);
    copies_.check(action);
    if (names_block(action.kind) || is_host_copy(action.kind)) return;
    switch (action.kind) {
      case ActionKind::fetch: return fetch(action);
      case ActionKind::forward: return forward(action);
      case ActionKind::repeat: return repeat(action);
      case ActionKind::backward_input: return backward(action);
      case ActionKind::backward_weight: return weight(action);
      case ActionKind::reduce: return reduce(action);
      case ActionKind::reduce_embedding: return reduce_embedding(action);
      case ActionKind::wait_reduce: return wait_reduce(action);
      case ActionKind::step: return step();
      case ActionKind::wait_forward:
        return wait_message(at(action).received_forward, at(action).waited_forward);
      case ActionKind::wait_backward:
        return wait_message(at(action).received_backward, at(action).waited_backward);
      default: return message(action);
    }
  }

  bool in_range(const Action& action) const {
    if (action.kind == ActionKind::step) return true;
    if (names_block(action.kind)) {
      return action.bucket >= 0 && action.bucket < static_cast<int>(gathers_.size());
    }
    if (names_bucket(action.kind)) return has_bucket(action);
    const bool place = action.chunk >= 0 && action.chunk < in_.chunks() && action.microbatch >= 0 &&
                       action.microbatch < in_.microbatches;
    if (!place || action.begin > action.end) return false;
    if (is_host_copy(action.kind) && action.end != action.begin + 1) return false;
    return (!is_pass(action.kind) && !is_host_copy(action.kind)) ||
           (action.begin >= units(action).begin && action.end <= units(action).end);
  }

  bool has_bucket(const Action& action) const {
    if (action.bucket < 0 || action.bucket >= static_cast<int>(buckets_.size())) return false;
    const BucketSum& sum = buckets_[static_cast<std::size_t>(action.bucket)];
    switch (action.kind) {
      case ActionKind::reduce: return sum.reduced;
      case ActionKind::reduce_embedding: return sum.embedding;
      default: return sum.has_rows();
    }
  }

  const UnitRange& units(const Action& action) const {
    return in_.units[static_cast<std::size_t>(action.chunk)];
  }
  std::size_t place_of(int chunk, int microbatch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(in_.microbatches) +
           static_cast<std::size_t>(microbatch);
  }
  RankProgress& at(int chunk, int microbatch) { return progress_[place_of(chunk, microbatch)]; }
  const RankProgress& at(int chunk, int microbatch) const {
    return progress_[place_of(chunk, microbatch)];
  }
  RankProgress& at(const Action& action) { return at(action.chunk, action.microbatch); }
  /// The index of a unit among the rank's units.
  std::size_t index(int chunk, int unit) const {
    return static_cast<std::size_t>(shift_[static_cast<std::size_t>(chunk)] + unit);
  }
  bool receives(const Action& action) const { return places_.receives(in_.stage, action.chunk); }
  bool sends(const Action& action) const { return places_.sends(in_.stage, action.chunk); }
  /// The progress of `chunk`, which is next to the row's chunk, if it is on this rank.
  const RankProgress* neighbour(const Action& action, std::optional<ChunkAt> chunk) {
    const bool here = chunk && chunk->stage == in_.stage;
    return here ? &at(chunk->chunk, action.microbatch) : nullptr;
  }
  const UnitRange& units_of(std::optional<ChunkAt> chunk) const {
    return in_.units[static_cast<std::size_t>(chunk->chunk)];
  }
  bool forward_done(const RankProgress& now, const UnitRange& range) const {
    return now.forward_ran && now.forward == range.end;
  }
  bool backward_done(const RankProgress& now, const UnitRange& range) const {
    return now.backward_ran && now.backward == range.begin;
  }

  void fetch(const Action& action) {
    if (at(action).fetched) fail("has been fetched before");
    at(action).fetched = true;
  }

  void forward(const Action& action) {
    RankProgress& now = at(action);
    if (!now.fetched) fail("its data is not fetched");
    if (receives(action)) check_arrival("input", now.received_forward, now.waited_forward);
    const auto from = places_.before(in_.stage, action.chunk);
    const RankProgress* below = neighbour(action, from);
    if (below != nullptr && !forward_done(*below, units_of(from))) {
      fail(formatted("its input is not made: F of chunk {}", from->chunk));
    }
    if (action.begin != now.forward || forward_done(now, units(action))) {
      fail(formatted("F must go on at unit {}", now.forward));
    }
    if (!legs_.completes(action)) return;
    now.forward = std::max(now.forward, action.end);
    now.forward_ran = true;
  }

  void repeat(const Action& action) {
    RankProgress& now = at(action);
    if (!forward_done(now, units(action))) fail("F again before F of all units");
    if (action.end != now.backward || now.repeated < now.backward) {
      fail(formatted("F again must be that of the next B, below unit {}", now.backward));
    }
    if (legs_.completes(action)) now.repeated = action.begin;
  }

  void check_repeated(const Action& action, const RankProgress& now) {
    for (int unit = action.begin; unit < std::min(action.end, now.repeated); ++unit) {
      if (!in_.forms.of(unit, action.chunk, action.microbatch).repeats()) continue;
      fail(formatted("F of unit {} has not been repeated", unit));
    }
  }

  void backward(const Action& action) {
    RankProgress& now = at(action);
    if (!forward_done(now, units(action))) fail("B before F of all units");
    if (sends(action)) check_arrival("gradient", now.received_backward, now.waited_backward);
    const auto from = places_.after(in_.stage, action.chunk);
    const RankProgress* above = neighbour(action, from);
    if (above != nullptr && !backward_done(*above, units_of(from))) {
      fail(formatted("its gradient is not made: B of chunk {}", from->chunk));
    }
    check_repeated(action, now);
    if (action.end != now.backward || backward_done(now, units(action))) {
      fail(formatted("B must go on below unit {}", now.backward));
    }
    if (!legs_.completes(action)) return;
    now.backward = std::min(now.backward, action.begin);
    now.backward_ran = true;
  }

  void weight(const Action& action) {
    RankProgress& now = at(action);
    if (!now.backward_ran) fail("W before B");
    for (int unit = action.begin; unit < action.end; ++unit) {
      if (unit < now.backward) fail(formatted("W before B of unit {}", unit));
      const std::size_t here = index(action.chunk, unit);
      char& done = weight_done_[static_cast<std::size_t>(action.microbatch) *
                                    static_cast<std::size_t>(units_) +
                                here];
      if (done != 0) {
        fail(formatted("W of unit {} has run before", unit));
        continue;
      }
      done = 1;
      const Action part{
          .chunk = action.chunk, .microbatch = action.microbatch, .begin = unit, .end = unit + 1};
      if (in_.deferral.concerns(part) && !passes_over()) {
        fail(formatted("W of unit {} comes before all passes are over", unit));
      }
      --now.weights_left;
      --weights_left_[here];
    }
  }

  /// Whether all B have run.
  bool passes_over() const {
    for (int chunk = 0; chunk < in_.chunks(); ++chunk) {
      const UnitRange& range = in_.units[static_cast<std::size_t>(chunk)];
      for (int microbatch = 0; microbatch < in_.microbatches; ++microbatch) {
        if (!backward_done(at(chunk, microbatch), range)) return false;
      }
    }
    return true;
  }

  /// Checks that a bucket's gradients are final; no bucket spans two chunks.
  void reduce(const Action& action) {
    const auto bucket = static_cast<std::size_t>(action.bucket);
    const bool again = reduced_[bucket]++ > 0;
    if (buckets_[bucket].repeated) return;
    if (again) fail("has been reduced before");
    check_final(buckets_[bucket]);
  }

  void check_final(const BucketSum& sum) {
    for (int chunk = 0; chunk < in_.chunks(); ++chunk) {
      const UnitRange& range = in_.units[static_cast<std::size_t>(chunk)];
      for (int unit = range.end - 1; unit >= range.begin; --unit) {
        if (!adds_to(sum, range, unit) || weights_left_[index(chunk, unit)] == 0) continue;
        fail(formatted("gradients of unit {} are not final", unit));
        return;
      }
    }
  }

  /// Whether W of a unit may add to the bucket, which is assumed for units of its chunk from
  /// ready_unit up. A head with deferred W only adds to buckets with its parameters, which may be
  /// in another chunk if the embedding is tied.
  bool adds_to(const BucketSum& sum, const UnitRange& range, int unit) const {
    if (unit == in_.deferral.unit) return sum.head >= 0;
    return range.holds(sum.ready_unit) && unit >= sum.ready_unit;
  }

  /// The stage's own sum must precede the sum over both stages.
  void reduce_embedding(const Action& action) {
    const auto bucket = static_cast<std::size_t>(action.bucket);
    if (shared_[bucket]++ > 0) fail("has been reduced before");
    if (!buckets_[bucket].reduced) return check_final(buckets_[bucket]);
    if (reduced_[bucket] == 0) fail("is not being reduced on its stage");
    if (buckets_[bucket].repeated) check_final(buckets_[bucket]);
  }

  void wait_reduce(const Action& action) {
    const auto bucket = static_cast<std::size_t>(action.bucket);
    if (buckets_[bucket].reduced && reduced_[bucket] == 0) fail("is not being reduced");
    if (buckets_[bucket].embedding && shared_[bucket] == 0) {
      if (buckets_[bucket].repeated) return;  // only waits for the slot
      fail("is not being summed over the embedding group");
    }
    waited_[bucket] = buckets_[bucket].reduced ? reduced_[bucket] : 1;
  }

  void message(const Action& action) {
    RankProgress& now = at(action);
    switch (action.kind) {
      case ActionKind::receive_forward:
        if (!receives(action)) fail("no other stage has the chunk before it");
        return once(now.received_forward);
      case ActionKind::receive_backward:
        if (!sends(action)) fail("no other stage has the chunk after it");
        return once(now.received_backward);
      case ActionKind::send_forward:
        if (!sends(action)) fail("no other stage has the chunk after it");
        if (!forward_done(now, units(action))) fail("is sent before F has made it");
        return once(now.sent_forward);
      default:
        if (!receives(action)) fail("no other stage has the chunk before it");
        if (!backward_done(now, units(action))) fail("is sent before B has made it");
        return once(now.sent_backward);
    }
  }

  void finish_forward() {
    for (int chunk = 0; chunk < in_.chunks(); ++chunk) {
      if (forward_done(at(chunk, 0), in_.units[static_cast<std::size_t>(chunk)])) continue;
      fail(formatted("F of all units of chunk {} has not run", chunk));
    }
    moves_.finish();
    legs_.finish();
  }

  void check_arrival(const std::string& what, bool received, bool waited) {
    if (!received) fail("its " + what + " is not received");
    const bool posts_only = in_.messages.mode == MessageMode::overlapped;
    if (posts_only && !waited) fail("its " + what + " is not waited for");
  }
  void wait_message(bool received, bool& waited) {
    if (!received) fail("is not being received");
    once(waited);
  }

  void once(bool& flag) {
    if (std::exchange(flag, true)) fail("has happened before");
  }

  void step() {
    stepped_ = true;
    for (int chunk = 0; chunk < in_.chunks(); ++chunk) {
      const UnitRange& range = in_.units[static_cast<std::size_t>(chunk)];
      for (int microbatch = 0; microbatch < in_.microbatches; ++microbatch) {
        const RankProgress& now = at(chunk, microbatch);
        if (forward_done(now, range) && backward_done(now, range) && now.weights_left == 0) {
          continue;
        }
        fail(formatted("F, B and W of all units of {}.{} have not run", microbatch, chunk));
      }
    }
    for (std::size_t bucket = 0; bucket < reduced_.size(); ++bucket) {
      const BucketSum& sum = buckets_[bucket];
      if (sum.reduced && reduced_[bucket] == 0)
        fail(formatted("bucket {} is never reduced", bucket));
      if (sum.embedding && shared_[bucket] == 0) {
        fail(formatted("bucket {} is never summed over the embedding group", bucket));
      }
      if (reduced_[bucket] + shared_[bucket] > 0 &&
          waited_[bucket] < std::max(1, reduced_[bucket])) {
        fail(formatted("nobody waited for reduce {}", bucket));
      }
    }
    moves_.finish();
    copies_.finish();
    legs_.finish();
  }

  const ScheduleInput& in_;
  ChunkPlaces places_;
  std::span<const Action> rows_;
  const std::vector<BucketSum>& buckets_;
  const std::vector<GatherBlock>& gathers_;
  std::string who_;
  std::vector<std::string>& violations_;
  std::vector<RankProgress> progress_;  // [chunk][micro-batch]
  int units_ = 0;                       // number of units in all chunks
  std::vector<int> shift_;              // per chunk; see index()
  std::vector<int> weights_left_;       // per unit: number of micro-batches
  std::vector<char> weight_done_;       // [micro-batch][unit]
  std::vector<int> reduced_;            // per bucket: number of rows of each kind
  std::vector<int> shared_;
  std::vector<int> waited_;
  MoveProof moves_;
  CopyProof copies_;
  ExchangeProof legs_;
  std::size_t row_ = 0;
  bool stepped_ = false;
};

}  // namespace

void prove_rows(const RankRows& rank, const std::vector<BucketSum>& buckets,
                const std::vector<GatherBlock>& gathers, const std::string& who,
                std::vector<std::string>& violations) {
  Proof(rank, buckets, gathers, who, violations).run();
}

}  // namespace trainctl
