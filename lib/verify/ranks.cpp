#include "verify/ranks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <string>

#include "base/at.h"
#include "base/dtype.h"
#include "base/error.h"
#include "comm/world.h"
#include "plan/gradients/buckets.h"
#include "plan/ownership/ownership.h"
#include "run/agreement.h"
#include "verify/data.h"
#include "verify/record.h"

namespace trainctl {

namespace {

/// A world with only the first `size` ranks of another world.
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
  own_config.train.on_bad_loss = "stop";
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
  std::mutex mutex;  // guards `all` and `verdict`
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

/// Ends the job with this rank's findings and the reason, because the other ranks wait for it in
/// the middle of a step.
[[noreturn]] void tell_end(const World& world, const Findings& own, const std::exception& failure) {
  std::string text = "the layout did not run to its end; " + failure_of(world, failure);
  if (own.first()) text += "\n  first: " + own.first()->text();
  throw Error(ExitCode::diverged, text);
}

LayoutVerdict judge_processes(const VerifiedLayout& layout, const Faults& faults, const Body& body,
                              World& job) {
  const std::unique_ptr<Group> everyone = job.everyone("verdict");
  require_one_plan(layout.plan, *everyone);
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

namespace {

constexpr std::int64_t elements_at_once = 1 << 18;

/// The tensor-parallel ranks that hold partial sums of this parameter's gradient.
std::vector<int> partial_ranks(const Plan& plan, const ParamSpec& spec, int rank) {
  const std::vector<int> tp = plan.mesh.group(rank, Axis::tp);
  if (is_partial(spec, false)) return tp;
  const std::int64_t copies = spec.tp_copies;
  const std::int64_t first = plan.mesh.coordinate(rank, Axis::tp) / copies * copies;
  return {tp.begin() + first, tp.begin() + first + copies};
}

/// The rounding unit of one addition in a 16-bit type.
double unit_of(DType dtype) { return dtype == DType::bf16 ? 0x1p-7 : 0x1p-10; }

}  // namespace

/// All ranks whose gradients are summed: along tp, over replicas, and over stages with a copy.
std::vector<int> GradientSums::ranks_of(const ParamSpec& spec) const {
  std::set<int> ranks;
  const std::vector<int> homes =
      spec.two_homes ? embedding_homes(plan_, rank_) : std::vector<int>{rank_};
  for (const int home : homes) {
    const auto replicas = data_ranks(plan_.mesh, home);
    for (const int replica : replicas[spec.expert]) {
      for (const int one : partial_ranks(plan_, spec, replica)) ranks.insert(one);
    }
  }
  return {ranks.begin(), ranks.end()};
}

GradientSums::GradientSums(const Plan& plan, World& world)
    : plan_(plan), rank_(world.rank()), stream_(DeviceKind::cpu, "sums", Stream::Mode::run_inline) {
  for (const ParamSpec& spec : plan.stage_of(rank_).parameters) {
    const std::vector<int> ranks = ranks_of(spec);
    std::unique_ptr<Group>& group = groups_[ranks];
    if (ranks.size() > 1 && group == nullptr) group = world.group("parts of gradients", ranks);
    group_of_.push_back(group.get());
  }
  parts_.resize(group_of_.size());
}

void GradientSums::begin_step() {
  for (std::vector<float>& part : parts_) part.clear();
}

void GradientSums::keep(const ParamStore& store, int bucket) {
  for (const int parameter : at(plan_.stage_of(rank_).flat.buckets, bucket).parameters) {
    if (at(group_of_, parameter) == nullptr) continue;
    const std::vector<float> made = values_of(store.made_gradient(parameter));
    std::vector<float>& part = at(parts_, parameter);
    part.resize(made.size());
    std::ranges::transform(part, made, part.begin(), std::plus<>());
  }
}

/// Returns this rank's sums over all ranks in double. `sizes` gets the sums of absolute values.
std::vector<double> GradientSums::sum_of_parts(int parameter, std::vector<double>& sizes) {
  std::vector<float>& part = at(parts_, parameter);
  Group& group = *at(group_of_, parameter);
  std::vector<double> sums(part.size());
  sizes.assign(part.size(), 0);
  const std::int64_t count = std::ssize(part);
  for (std::int64_t begin = 0; begin < count; begin += elements_at_once) {
    const std::int64_t length = std::min(elements_at_once, count - begin);
    all_.resize(static_cast<std::size_t>(length * group.size()));
    group.all_gather(host_tensor(part.data() + begin, length),
                     host_tensor(all_.data(), std::ssize(all_)), stream_);
    for (std::int64_t i = 0; i < std::ssize(all_); ++i) {
      const double value = double{at(all_, i)};
      at(sums, begin + i % length) += value;
      at(sizes, begin + i % length) += std::abs(value);
    }
  }
  return sums;
}

void GradientSums::compare(const ParamStore& store, Findings& findings, std::int64_t step) {
  Findings::Subject subject{.phase = Phase::sum, .step = step};
  subject.beside = "the parts of the ranks add up to";
  const GradientRule& rule = plan_.gradient;
  for (int i = 0; i < static_cast<int>(parts_.size()); ++i) {
    const ParamSpec& spec = at(store.table(), i);
    if (at(group_of_, i) == nullptr || at(parts_, i).empty()) continue;
    std::vector<double> sizes;
    std::vector<double> sums = sum_of_parts(i, sizes);
    const Slice& summed = at(store.ownership().parameters, i).summed;
    const double scale = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
    if (summed.length() == 0 || scale == 0) continue;
    sums = {sums.begin() + summed.begin, sums.begin() + summed.end};
    subject.row = i;
    subject.bound = sum_bound;
    for (const DType dtype : {rule.dtype, rule.kept}) {
      if (dtype == DType::f32) continue;
      const auto additions = at(group_of_, i)->size() * plan_.microbatches;
      subject.bound = std::max(subject.bound, static_cast<double>(additions) * unit_of(dtype));
    }
    findings.compare_part(subject, spec, "gradient " + spec.name, {store.gradient(i), summed}, sums,
                          scale);
  }
}

struct SumWorld::Sum {
  std::string name;        // operation and group
  std::vector<float> all;  // the inputs of all ranks, rank after rank
  std::int64_t ranks = 1;
  std::int64_t begin = 0;  // start of this rank's result within each input
  std::vector<float> found;
  DType dtype = DType::f32;
};

namespace {

float rounded(float value, DType dtype) {
  if (dtype == DType::bf16) return to_float(to_bf16(value));
  if (dtype == DType::f16) return to_float(to_fp16(value));
  return value;
}

/// A sum of a collective that has not completed.
struct Pending {
  SumWorld* world = nullptr;
  SumWorld::Sum sum;
  Tensor input;
  Tensor output;
  std::vector<std::byte> given;  // copy of the input
  std::vector<std::byte> all;
  std::atomic<bool> done = false;  // set by the stream, which then no longer uses this object
};

Tensor bytes_as(std::vector<std::byte>& bytes, DType dtype) {
  return {bytes.data(), {std::ssize(bytes) / size_of(dtype)}, dtype, DeviceKind::cpu};
}

void give(Pending& pending) {
  const auto* begin = static_cast<const std::byte*>(pending.input.data);
  std::copy_n(begin, pending.input.bytes(), pending.given.begin());
}

void look(Pending& pending) {
  pending.sum.all = values_of(bytes_as(pending.all, pending.input.dtype));
  pending.sum.found = values_of(pending.output);
  pending.world->compare(pending.sum);
  pending.done.store(true, std::memory_order_release);
}

class SumGroup : public Group {
 public:
  SumGroup(SumWorld& world, std::unique_ptr<Group> inner, std::unique_ptr<Group> shown)
      : world_(world), inner_(std::move(inner)), shown_(std::move(shown)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  double deadline_seconds() const override { return inner_->deadline_seconds(); }

  void all_reduce(const Tensor& data, Stream& stream) override {
    Pending& pending = show("all_reduce", data, data, stream);
    inner_->all_reduce(data, stream);
    stream.enqueue([sum = &pending] { look(*sum); });
  }
  void reduce_scatter(const Tensor& data, const Tensor& shard, Stream& stream) override {
    Pending& pending = show("reduce_scatter", data, shard, stream);
    pending.sum.begin = rank() * shard.numel();
    inner_->reduce_scatter(data, shard, stream);
    stream.enqueue([sum = &pending] { look(*sum); });
  }
  void all_gather(const Tensor& shard, const Tensor& data, Stream& stream) override {
    inner_->all_gather(shard, data, stream);
  }
  void broadcast(const Tensor& data, int root, Stream& stream) override {
    inner_->broadcast(data, root, stream);
  }
  void all_to_all(const Tensor& send, std::span<const std::int64_t> send_counts,
                  const Tensor& receive, std::span<const std::int64_t> receive_counts,
                  Stream& stream) override {
    inner_->all_to_all(send, send_counts, receive, receive_counts, stream);
  }
  void open_lines(std::span<const MessageLine> lines) override { inner_->open_lines(lines); }
  Event send(const Tensor& data, int to, int tag, Stream& stream) override {
    return inner_->send(data, to, tag, stream);
  }
  Event receive(const Tensor& data, int from, int tag, Stream& stream) override {
    return inner_->receive(data, from, tag, stream);
  }
  void barrier(Stream& stream) override { inner_->barrier(stream); }

 private:
  /// Gathers the inputs of all ranks before the collective sums them. First frees the buffers of
  /// completed sums, in order.
  Pending& show(const char* operation, const Tensor& input, const Tensor& output, Stream& stream) {
    while (!pending_.empty() && pending_.front()->done.load(std::memory_order_acquire)) {
      pending_.pop_front();
    }
    Pending& pending = *pending_.emplace_back(std::make_unique<Pending>());
    pending.world = &world_;
    pending.sum.name = std::string(operation) + " '" + name() + "'";
    pending.sum.ranks = size();
    pending.sum.dtype = input.dtype;
    pending.input = input;
    pending.output = output;
    pending.given.resize(static_cast<std::size_t>(input.bytes()));
    pending.all.resize(pending.given.size() * static_cast<std::size_t>(size()));
    stream.enqueue([sum = &pending] { give(*sum); });
    shown_->all_gather(bytes_as(pending.given, input.dtype), bytes_as(pending.all, input.dtype),
                       stream);
    return pending;
  }

  SumWorld& world_;
  std::unique_ptr<Group> inner_;
  std::unique_ptr<Group> shown_;
  std::deque<std::unique_ptr<Pending>> pending_;
};

}  // namespace

SumWorld::SumWorld(World& world, const Mesh& mesh)
    : ForwardingWorld(world), findings_(mesh, world.rank()) {}

std::unique_ptr<Group> SumWorld::group(const std::string& name, std::span<const int> ranks) {
  std::unique_ptr<Group> summing = inner().group(name, ranks);
  if (summing->size() == 1) return summing;
  return std::make_unique<SumGroup>(*this, std::move(summing),
                                    inner().group("given: " + name, ranks));
}

void SumWorld::begin_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
}

void SumWorld::tell(Findings& findings) {
  const std::lock_guard lock(mutex_);
  findings.merge(findings_);
}

void SumWorld::compare(const Sum& sum) {
  const std::int64_t given = std::ssize(sum.all) / sum.ranks;
  double largest = 0;  // largest sum of absolute values
  double apart = 0;
  double found = 0;
  double expected = 0;
  bool same = true;
  for (std::int64_t i = 0; i < std::ssize(sum.found); ++i) {
    float in_order = at(sum.all, sum.begin + i);
    double exact = double{in_order};
    double size = std::abs(exact);
    for (std::int64_t rank = 1; rank < sum.ranks; ++rank) {
      const float part = at(sum.all, rank * given + sum.begin + i);
      in_order += part;
      exact += double{part};
      size += std::abs(double{part});
    }
    const float own = at(sum.found, i);
    const float right = rounded(in_order, sum.dtype);
    if (!std::isfinite(right)) continue;  // an overflow, which the step itself detects
    largest = std::max(largest, size);
    const double distance = difference_of(double{own}, exact);
    const bool other = own != right;
    if (distance > apart || (other && same)) {
      apart = std::max(apart, distance);
      found = double{own};
      expected = other ? double{right} : exact;
    }
    if (other) same = false;
  }
  if (largest == 0 && same) return;
  const double unit = sum.dtype == DType::f32 ? sum_bound : 0x1p-7;
  const std::lock_guard lock(mutex_);
  Findings::Subject subject{.phase = Phase::sum, .step = step_, .bound = unit};
  subject.beside = "what the ranks gave adds up to";
  const double error = largest > 0 ? apart / largest : 1;
  findings_.compare_error(subject, sum.name, found, expected, error);
  if (same) return;
  subject.bound = 0;
  subject.beside = "in the order of ranks it is";
  findings_.compare_error(subject, sum.name, found, expected, std::max(error, 0x1p-24));
}

}  // namespace trainctl
