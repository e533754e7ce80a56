#include <algorithm>
#include <cstdint>

#include "plan/simulate.h"

namespace trainctl {

namespace {

/// What has happened to one (chunk, micro-batch) on this rank so far.
struct Progress {
  bool fetched = false;
  bool received_forward = false;
  bool received_backward = false;
  bool sent_forward = false;
  bool sent_backward = false;
  int forward = 0;                // units [0, forward) have run F
  int backward = 0;               // units [backward, units) have run B
  std::vector<bool> weight_done;  // per unit
};

class Proof {
 public:
  Proof(const RankRows& rank, const std::vector<int>& bucket_ready, std::string who,
        std::vector<std::string>& violations)
      : in_(rank.input),
        bucket_ready_(bucket_ready),
        who_(std::move(who)),
        violations_(violations),
        progress_(static_cast<std::size_t>(in_.chunks * in_.microbatches)),
        weights_left_(static_cast<std::size_t>(in_.units), in_.chunks * in_.microbatches),
        reduced_(bucket_ready.size(), 0),
        waited_(bucket_ready.size(), 0) {
    for (Progress& one : progress_) {
      one.backward = in_.units;
      one.weight_done.resize(static_cast<std::size_t>(in_.units), false);
    }
  }

  void row(std::size_t index, const Action& action) {
    where_ = who_ + " row " + std::to_string(index) + ", " + to_string(action) + ": ";
    if (stepped_) fail("comes after the step");
    if (!in_range(action)) return fail("is out of range");
    switch (action.kind) {
      case ActionKind::fetch: return fetch(action);
      case ActionKind::forward: return forward(action);
      case ActionKind::backward_input: return backward(action);
      case ActionKind::backward_weight: return weight(action);
      case ActionKind::reduce: return reduce(action);
      case ActionKind::wait_reduce: return wait_reduce(action);
      case ActionKind::step: return step();
      default: return message(action);
    }
  }

  void finish() {
    where_ = who_ + ": ";
    if (!stepped_) fail("has no step");
  }

 private:
  void fail(const std::string& what) { violations_.push_back(where_ + what); }

  bool in_range(const Action& action) const {
    if (action.kind == ActionKind::step) return true;
    if (action.kind == ActionKind::reduce || action.kind == ActionKind::wait_reduce) {
      return action.bucket >= 0 && action.bucket < static_cast<int>(bucket_ready_.size());
    }
    const bool place = action.chunk >= 0 && action.chunk < in_.chunks && action.microbatch >= 0 &&
                       action.microbatch < in_.microbatches;
    return place && action.begin >= 0 && action.begin <= action.end && action.end <= in_.units;
  }

  Progress& at(const Action& action) {
    return progress_[static_cast<std::size_t>(action.chunk * in_.microbatches + action.microbatch)];
  }
  bool is_first(const Action& action) const { return in_.stage == 0 && action.chunk == 0; }
  bool is_last(const Action& action) const {
    return in_.stage == in_.stages - 1 && action.chunk == in_.chunks - 1;
  }

  void fetch(const Action& action) {
    if (at(action).fetched) fail("has been fetched before");
    at(action).fetched = true;
  }

  void forward(const Action& action) {
    Progress& now = at(action);
    if ((is_first(action) || is_last(action)) && !now.fetched) fail("its data is not fetched");
    if (!is_first(action) && !now.received_forward) fail("its input is not received");
    if (action.begin != now.forward) {
      fail("F must go on at unit " + std::to_string(now.forward));
    }
    now.forward = std::max(now.forward, action.end);
  }

  void backward(const Action& action) {
    Progress& now = at(action);
    if (now.forward < in_.units) fail("B before F of all units");
    if (!is_last(action) && !now.received_backward) fail("its gradient is not received");
    if (action.end != now.backward) {
      fail("B must go on below unit " + std::to_string(now.backward));
    }
    now.backward = std::min(now.backward, action.begin);
  }

  void weight(const Action& action) {
    Progress& now = at(action);
    for (int unit = action.begin; unit < action.end; ++unit) {
      const auto i = static_cast<std::size_t>(unit);
      if (unit < now.backward) fail("W before B of unit " + std::to_string(unit));
      if (now.weight_done[i]) {
        fail("W of unit " + std::to_string(unit) + " has run before");
        continue;
      }
      now.weight_done[i] = true;
      --weights_left_[i];
    }
  }

  void reduce(const Action& action) {
    const auto bucket = static_cast<std::size_t>(action.bucket);
    if (reduced_[bucket]++ > 0) fail("has been reduced before");
    for (int unit = in_.units - 1; unit >= bucket_ready_[bucket]; --unit) {
      if (weights_left_[static_cast<std::size_t>(unit)] == 0) continue;
      fail("gradients of unit " + std::to_string(unit) + " are not final");
      return;
    }
  }

  void wait_reduce(const Action& action) {
    const auto bucket = static_cast<std::size_t>(action.bucket);
    if (reduced_[bucket] == 0) fail("is not being reduced");
    waited_[bucket] = 1;
  }

  void message(const Action& action) {
    Progress& now = at(action);
    switch (action.kind) {
      case ActionKind::receive_forward:
        if (is_first(action)) fail("nothing comes from before the first stage");
        once(now.received_forward);
        break;
      case ActionKind::receive_backward:
        if (is_last(action)) fail("nothing comes from after the last stage");
        once(now.received_backward);
        break;
      case ActionKind::send_forward:
        if (is_last(action)) fail("there is nothing after the last stage");
        if (now.forward < in_.units) fail("is sent before F has made it");
        once(now.sent_forward);
        break;
      default:
        if (is_first(action)) fail("there is nothing before the first stage");
        if (now.backward > 0) fail("is sent before B has made it");
        once(now.sent_backward);
        break;
    }
  }

  void once(bool& flag) {
    if (flag) fail("has happened before");
    flag = true;
  }

  void step() {
    stepped_ = true;
    for (int chunk = 0; chunk < in_.chunks; ++chunk) {
      for (int microbatch = 0; microbatch < in_.microbatches; ++microbatch) {
        const Progress& now =
            progress_[static_cast<std::size_t>(chunk * in_.microbatches + microbatch)];
        const auto weights = std::count(now.weight_done.begin(), now.weight_done.end(), true);
        if (now.forward == in_.units && now.backward == 0 && weights == in_.units) continue;
        fail("F, B and W of all units of " + std::to_string(chunk) + "." +
             std::to_string(microbatch) + " have not run");
      }
    }
    for (std::size_t bucket = 0; bucket < reduced_.size(); ++bucket) {
      if (reduced_[bucket] == 0) fail("bucket " + std::to_string(bucket) + " is never reduced");
      if (reduced_[bucket] > 0 && waited_[bucket] == 0) {
        fail("nobody waited for reduce " + std::to_string(bucket));
      }
    }
  }

  const ScheduleInput& in_;
  const std::vector<int>& bucket_ready_;
  std::string who_;
  std::string where_;
  std::vector<std::string>& violations_;
  std::vector<Progress> progress_;
  std::vector<int> weights_left_;  // per unit, over chunks and micro-batches
  std::vector<int> reduced_;
  std::vector<int> waited_;
  bool stepped_ = false;
};

}  // namespace

void prove_rows(const RankRows& rank, const std::vector<int>& bucket_ready, const std::string& who,
                std::vector<std::string>& violations) {
  Proof proof(rank, bucket_ready, who, violations);
  for (std::size_t i = 0; i < rank.rows.size(); ++i) proof.row(i, rank.rows[i]);
  proof.finish();
}

}  // namespace trainctl
