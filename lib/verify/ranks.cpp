#include "verify/ranks.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <string>

#include "base/error.h"
#include "comm/world.h"
#include "verify/data.h"

namespace trainctl {

namespace {

/// The first ranks of another world.
class FirstRanks : public ForwardingWorld {
 public:
  FirstRanks(World& all, int size) : ForwardingWorld(all), size_(size) {}

  int size() const override { return size_; }
  int local_size() const override { return std::min(inner().local_size(), size_); }

 private:
  int size_;
};

using Body = std::function<void(const VerifyInput&, World&, Findings&)>;

void run_rank(const VerifiedLayout& layout, const Faults& faults, const Body& body, World& world,
              Findings& findings) {
  Config own_config = layout.config;
  own_config.train.on_bad_loss = OnBadLoss::stop;
  Plan own_plan = layout.plan;
  if (faults.config) faults.config(world.rank(), own_config);
  if (faults.plan) faults.plan(world.rank(), own_plan);
  const std::unique_ptr<World> other = faults.world ? faults.world(world) : nullptr;
  body({own_config, own_plan, layout.config, layout.plan, faults, layout.deadline_seconds},
       other ? *other : world, findings);
}

std::string failure_of(const World& world, const std::exception& failure) {
  return "rank " + std::to_string(world.rank()) + ": " + failure.what();
}

void take(const Findings& all, LayoutVerdict& verdict) {
  verdict.first = all.first();
  verdict.largest = all.largest();
  verdict.equal = !verdict.first && verdict.failure.empty();
}

LayoutVerdict judge_threads(const VerifiedLayout& layout, const Faults& faults, const Body& body) {
  LayoutVerdict verdict;
  Findings all(layout.plan.mesh, 0);
  std::mutex mutex;  // of both
  const auto run = [&](World& world) {
    Findings own(layout.plan.mesh, world.rank());
    try {
      run_rank(layout, faults, body, world, own);
    } catch (const std::exception& failure) {
      const std::lock_guard lock(mutex);
      all.merge(own);
      if (verdict.failure.empty()) verdict.failure = failure_of(world, failure);
      throw;
    }
    const std::lock_guard lock(mutex);
    all.merge(own);
  };
  try {
    run_thread_world(static_cast<int>(layout.plan.mesh.world_size()),
                     {.deadline_seconds = layout.deadline_seconds}, run);
  } catch (const Error& failure) {
    if (verdict.failure.empty()) verdict.failure = failure.what();
  }
  take(all, verdict);
  return verdict;
}

void check_alike(const Plan& plan, Group& everyone) {
  const auto hashes = gather_values(everyone, plan.hash);
  for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
    require(hashes[rank] == hashes[0], ExitCode::peer,
            "rank " + std::to_string(rank) + " made another plan than rank 0 (" +
                std::to_string(hashes[rank]) + " != " + std::to_string(hashes[0]) +
                "): the config files or the binaries differ between the ranks");
  }
}

/// The others wait for this rank in the middle of a step, so the job ends with it: what it found is
/// told with the reason.
[[noreturn]] void tell_end(const World& world, const Findings& own, const std::exception& failure) {
  std::string text = "the layout did not run to its end; " + failure_of(world, failure);
  if (own.first()) text += "\n  first: " + own.first()->text();
  throw Error(ExitCode::diverged, text);
}

LayoutVerdict judge_processes(const VerifiedLayout& layout, const Faults& faults, const Body& body,
                              World& job) {
  const std::unique_ptr<Group> everyone = job.everyone("verdict");
  check_alike(layout.plan, *everyone);
  FirstRanks world(job, static_cast<int>(layout.plan.mesh.world_size()));
  Findings own(layout.plan.mesh, job.rank());
  if (job.rank() < world.size()) {
    try {
      run_rank(layout, faults, body, world, own);
    } catch (const std::exception& failure) {
      tell_end(world, own, failure);
    }
  }
  Findings all(layout.plan.mesh, 0);
  for (const std::string& bytes : gather_bytes(*everyone, own.bytes(), 0)) all.take_bytes(bytes);
  std::string bytes = all.bytes();
  broadcast_bytes(*everyone, bytes, 0);
  Findings shared(layout.plan.mesh, 0);
  shared.take_bytes(bytes);
  LayoutVerdict verdict;
  take(shared, verdict);
  return verdict;
}

}  // namespace

LayoutVerdict judge_ranks(const VerifiedLayout& layout, const Faults& faults, const Body& body) {
  if (layout.job == nullptr) return judge_threads(layout, faults, body);
  return judge_processes(layout, faults, body, *layout.job);
}

JobFolder::JobFolder(World* job) {
  if (job == nullptr || job->rank() == 0) {
    own_.reset(new TemporaryFolder(verify_folder()));
  }
  std::string text = own_ ? own_->path().string() : "";
  if (job != nullptr) broadcast_bytes(*job->everyone("folder"), text, 0);
  path_ = text;
}

}  // namespace trainctl
