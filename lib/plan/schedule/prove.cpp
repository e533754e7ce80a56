#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "plan/schedule/prove_copies.h"
#include "plan/schedule/prove_legs.h"
#include "plan/schedule/prove_moves.h"
#include "plan/schedule/simulate.h"

namespace trainctl {

namespace {

/// What has happened to one (chunk, micro-batch) on this rank so far.
struct RankProgress {
  bool fetched = false;
  bool received_forward = false;
  bool received_backward = false;
  bool waited_forward = false;  // where receives are only posted
  bool waited_backward = false;
  bool sent_forward = false;
  bool sent_backward = false;
  bool forward_ran = false;  // some F and some B: a chunk without units has one row of each
  bool backward_ran = false;
  int forward = 0;       // units below this have run F
  int repeated = 0;      // units from here up have run F again, if they must
  int backward = 0;      // units from here up have run B
  int weights_left = 0;  // units that have not run W
};

class Proof {
 public:
  Proof(const RankRows& rank, const std::vector<BucketSum>& buckets,
        const std::vector<ReadBlock>& gathers, std::string who,
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
    if (row_ < rows_.size()) {
      where += " row " + std::to_string(row_) + ", " + to_string(rows_[row_]);
    }
    violations_.push_back(where + ": " + what);
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
    switch (action.kind) {
      case ActionKind::gather:
      case ActionKind::wait_gather:
      case ActionKind::free:
      case ActionKind::offload:
      case ActionKind::wait_offload:
      case ActionKind::reload:
      case ActionKind::wait_reload: return;
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
  RankProgress& at(int chunk, int microbatch) {
    return progress_[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(in_.microbatches) +
                     static_cast<std::size_t>(microbatch)];
  }
  RankProgress& at(const Action& action) { return at(action.chunk, action.microbatch); }
  /// The place of a unit among this rank's.
  std::size_t index(int chunk, int unit) const {
    return static_cast<std::size_t>(shift_[static_cast<std::size_t>(chunk)] + unit);
  }
  bool receives(const Action& action) const { return places_.receives(in_.stage, action.chunk); }
  bool sends(const Action& action) const { return places_.sends(in_.stage, action.chunk); }
  /// The chunk before or after it in the model, if it is on this rank.
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
    if (receives(action) && !now.received_forward) fail("its input is not received");
    if (receives(action) && posts_only() && !now.waited_forward) {
      fail("its input is not waited for");
    }
    const auto from = places_.before(in_.stage, action.chunk);
    const RankProgress* below = neighbour(action, from);
    if (below != nullptr && !forward_done(*below, units_of(from))) {
      fail("its input is not made: F of chunk " + std::to_string(from->chunk));
    }
    if (action.begin != now.forward || forward_done(now, units(action))) {
      fail("F must go on at unit " + std::to_string(now.forward));
    }
    if (!legs_.completes(action)) return;
    now.forward = std::max(now.forward, action.end);
    now.forward_ran = true;
  }

  void repeat(const Action& action) {
    RankProgress& now = at(action);
    if (!forward_done(now, units(action))) fail("F again before F of all units");
    if (action.end != now.backward || now.repeated < now.backward) {
      fail("F again must be that of the next B, below unit " + std::to_string(now.backward));
    }
    if (legs_.completes(action)) now.repeated = action.begin;
  }

  void check_repeated(const Action& action, const RankProgress& now) {
    for (int unit = action.begin; unit < std::min(action.end, now.repeated); ++unit) {
      if (!in_.forms.of(unit, action.chunk, action.microbatch).repeats()) continue;
      fail("F of unit " + std::to_string(unit) + " has not been repeated");
    }
  }

  void backward(const Action& action) {
    RankProgress& now = at(action);
    if (!forward_done(now, units(action))) fail("B before F of all units");
    if (sends(action) && !now.received_backward) fail("its gradient is not received");
    if (sends(action) && posts_only() && !now.waited_backward) {
      fail("its gradient is not waited for");
    }
    const auto from = places_.after(in_.stage, action.chunk);
    const RankProgress* above = neighbour(action, from);
    if (above != nullptr && !backward_done(*above, units_of(from))) {
      fail("its gradient is not made: B of chunk " + std::to_string(from->chunk));
    }
    check_repeated(action, now);
    if (action.end != now.backward || backward_done(now, units(action))) {
      fail("B must go on below unit " + std::to_string(now.backward));
    }
    if (!legs_.completes(action)) return;
    now.backward = std::min(now.backward, action.begin);
    now.backward_ran = true;
  }

  void weight(const Action& action) {
    RankProgress& now = at(action);
    if (!now.backward_ran) fail("W before B");
    for (int unit = action.begin; unit < action.end; ++unit) {
      if (unit < now.backward) fail("W before B of unit " + std::to_string(unit));
      const std::size_t here = index(action.chunk, unit);
      char& done = weight_done_[static_cast<std::size_t>(action.microbatch) *
                                    static_cast<std::size_t>(units_) +
                                here];
      if (done != 0) {
        fail("W of unit " + std::to_string(unit) + " has run before");
        continue;
      }
      done = 1;
      const Action part{
          .chunk = action.chunk, .microbatch = action.microbatch, .begin = unit, .end = unit + 1};
      if (in_.deferral.concerns(part) && !passes_over()) {
        fail("W of unit " + std::to_string(unit) + " comes before all passes are over");
      }
      --now.weights_left;
      --weights_left_[here];
    }
  }

  /// All B have run.
  bool passes_over() const {
    for (int chunk = 0; chunk < in_.chunks(); ++chunk) {
      for (int microbatch = 0; microbatch < in_.microbatches; ++microbatch) {
        const RankProgress& now =
            progress_[static_cast<std::size_t>(chunk * in_.microbatches + microbatch)];
        if (!backward_done(now, in_.units[static_cast<std::size_t>(chunk)])) return false;
      }
    }
    return true;
  }

  /// No bucket spans two chunks: its gradients are those of its chunk from its ready unit up.
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
        fail("gradients of unit " + std::to_string(unit) + " are not final");
        return;
      }
    }
  }

  /// Whether W of a unit may add to the bucket: as far as is looked at, those of its chunk from its
  /// ready unit up. A head whose W is deferred only adds to buckets with its parameters, which may
  /// be of another chunk where the embedding is tied.
  bool adds_to(const BucketSum& sum, const UnitRange& range, int unit) const {
    if (unit == in_.deferral.unit) return sum.head >= 0;
    return range.holds(sum.ready_unit) && unit >= sum.ready_unit;
  }

  /// The stage's own sum first, then that over both stages.
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
      if (buckets_[bucket].repeated) return;  // it only waits for the slot
      fail("is not being summed over the embedding group");
    }
    waited_[bucket] = buckets_[bucket].reduced ? reduced_[bucket] : 1;
  }

  void message(const Action& action) {
    RankProgress& now = at(action);
    switch (action.kind) {
      case ActionKind::receive_forward:
        if (!receives(action)) fail("no other stage has the chunk before it");
        once(now.received_forward);
        break;
      case ActionKind::receive_backward:
        if (!sends(action)) fail("no other stage has the chunk after it");
        once(now.received_backward);
        break;
      case ActionKind::send_forward:
        if (!sends(action)) fail("no other stage has the chunk after it");
        if (!forward_done(now, units(action))) fail("is sent before F has made it");
        once(now.sent_forward);
        break;
      default:
        if (!receives(action)) fail("no other stage has the chunk before it");
        if (!backward_done(now, units(action))) fail("is sent before B has made it");
        once(now.sent_backward);
        break;
    }
  }

  void finish_forward() {
    for (int chunk = 0; chunk < in_.chunks(); ++chunk) {
      if (forward_done(at(chunk, 0), in_.units[static_cast<std::size_t>(chunk)])) continue;
      fail("F of all units of chunk " + std::to_string(chunk) + " has not run");
    }
    moves_.finish();
    legs_.finish();
  }

  bool posts_only() const { return in_.messages.mode == MessageMode::overlapped; }
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
        fail("F, B and W of all units of " + std::to_string(microbatch) + "." +
             std::to_string(chunk) + " have not run");
      }
    }
    for (std::size_t bucket = 0; bucket < reduced_.size(); ++bucket) {
      const BucketSum& sum = buckets_[bucket];
      const std::string name = std::to_string(bucket);
      if (sum.reduced && reduced_[bucket] == 0) fail("bucket " + name + " is never reduced");
      if (sum.embedding && shared_[bucket] == 0) {
        fail("bucket " + name + " is never summed over the embedding group");
      }
      if (reduced_[bucket] + shared_[bucket] > 0 &&
          waited_[bucket] < std::max(1, reduced_[bucket])) {
        fail("nobody waited for reduce " + name);
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
  const std::vector<ReadBlock>& gathers_;
  std::string who_;
  std::vector<std::string>& violations_;
  std::vector<RankProgress> progress_;  // [chunk][micro-batch]
  int units_ = 0;                       // of all chunks
  std::vector<int> shift_;              // per chunk, see index()
  std::vector<int> weights_left_;       // per unit, over micro-batches
  std::vector<char> weight_done_;       // [micro-batch][unit]
  std::vector<int> reduced_;            // per bucket: how many rows of each kind
  std::vector<int> shared_;
  std::vector<int> waited_;
  MoveProof moves_;
  CopyProof copies_;
  LegProof legs_;
  std::size_t row_ = 0;
  bool stepped_ = false;
};

}  // namespace

void prove_rows(const RankRows& rank, const std::vector<BucketSum>& buckets,
                const std::vector<ReadBlock>& gathers, const std::string& who,
                std::vector<std::string>& violations) {
  Proof(rank, buckets, gathers, who, violations).run();
}

}  // namespace trainctl
