#include "engine/parameters/param_store.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/at.h"
#include "base/error.h"
#include "base/integers.h"
#include "base/log.h"
#include "base/text.h"
#include "config/schema/optimizers.h"
#include "device/wait.h"
#include "ops/elementwise.h"
#include "plan/gradients/gathers.h"
#include "plan/rules/resolve.h"
#include "plan/tables/shard.h"

namespace trainctl {

namespace {

ParamStore::Contents completed(ParamStore::Contents contents, const StagePlan& stage) {
  if (contents.ownership.parameters.empty()) contents.ownership = whole_ownership(stage);
  return contents;
}

std::vector<SlabRow> rows_of(const ParamStore::Contents& contents, const ParameterPlaces& places,
                             const StatePlaces& states) {
  std::vector<SlabRow> rows{{"weights", Shape{places.weight_bytes}, DType::u8}};
  const Shape masters{places.master_bytes(contents.ownership.state_length)};
  if (places.masters_apart) rows.push_back({"masters", masters, DType::u8});
  if (contents.training) rows.push_back({"gradients", Shape{places.gradient_length}, DType::f32});
  if (contents.training) rows.push_back({"sums", Shape{places.sum_length}, contents.sums});
  for (int state = 0; const std::int64_t bytes : states.bytes) {
    rows.push_back({"state" + std::to_string(state++), Shape{bytes}, DType::u8});
  }
  return rows;
}

}  // namespace

ParamStore::ParamStore(DeviceKind device, const StagePlan& stage, const Contents& contents)
    : stage_(stage),
      contents_(completed(contents, stage)),
      places_(place_parameters(stage, contents.compute, contents_.ownership)),
      states_(contents_.optimizer == nullptr
                  ? StatePlaces{}
                  : place_states(stage, contents_.ownership, *contents_.optimizer)),
      slab_(device, rows_of(contents_, places_, states_)),
      host_(Slab::on_host_for(device, {{"weights", Shape{places_.host_bytes}, DType::u8}})) {
  for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
    index_[stage.parameters[i].name] = static_cast<int>(i);
  }
  if (contents.optimizer != nullptr) {
    average_decay_ = contents.optimizer->ema_decay;
    for (const ParamSpec& spec : stage.parameters) {
      state_types_.push_back(optimizer_values(spec.update, *contents.optimizer));
    }
  }
  has_values_.resize(stage.parameters.size());
  if (contents_.training) zeroed_ = between_products();
}

bool ParamStore::products_begin(int parameter) const {
  return contents_.begun_by_products && place(parameter).written;
}

std::vector<Slice> ParamStore::between_products() const {
  std::vector<Slice> begun;
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    if (!products_begin(i)) continue;
    const std::int64_t begin = place(i).gradient;
    begun.push_back({begin, begin + at(table(), i).shape.numel()});
  }
  std::ranges::sort(begun, {}, &Slice::begin);
  begun.push_back({places_.gradient_length, places_.gradient_length});
  std::vector<Slice> between;
  std::int64_t end = 0;
  for (const Slice& one : begun) {
    if (end < one.begin) between.push_back({end, one.begin});
    end = one.end;
  }
  return between;
}

void ParamStore::begin_gradients(Stream& stream) {
  for (const Slice& part : zeroed_) stream.zero(made_gradients().slice(part.begin, part.end));
  std::ranges::fill(has_values_, false);
}

void ParamStore::initialise(const OpContext& context, std::uint64_t seed, const Mesh& mesh,
                            std::int64_t rank) {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const ParamSpec& spec = at(table(), i);
    const Slice own = owned(i);
    const Tensor values = master(i).view({own.length()});
    if (spec.init != "normal") {
      const std::vector<float> same(static_cast<std::size_t>(own.length()),
                                    spec.init == "ones" ? 1.0F : 0.0F);
      const HostValues on_host(values);
      store_floats(same.data(), on_host.values());
      on_host.store();
      continue;
    }
    for (const BoxRun& piece : pieces_in(spec, mesh, rank, own)) {
      normal_fill(context, {.x = values.slice(piece.to, piece.to + piece.length),
                            .seed = seed,
                            .stream = fnv1a(spec.name),
                            .first = piece.from,
                            .deviation = static_cast<float>(spec.init_deviation)});
    }
  }
  refresh_weights(context);
}

void ParamStore::refresh_weights(const OpContext& context) const {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const Tensor weight = rounded(i);
    if (!weight.empty() && owned(i).length() > 0) cast(context, {.x = master(i), .y = weight});
  }
}

Weight ParamStore::weight(const std::string& name) {
  const int parameter = index_of(name);
  Weight weight;
  weight.value = resident(parameter);
  if (!contents_.training) return weight;
  weight.gradient = made_gradient(parameter).view(at(table(), parameter).shape);
  if (products_begin(parameter)) weight.has_values = &at(has_values_, parameter);
  return weight;
}

Tensor ParamStore::resident(int parameter) const {
  const ParamSpec& spec = at(table(), parameter);
  const Tensor weights = slab_.at("weights");
  return {static_cast<std::byte*>(weights.data) + place(parameter).weight, spec.shape,
          read_type(spec, contents_.compute), weights.device};
}

Tensor ParamStore::block_weights(int block) const {
  const Bucket& bucket = at(stage_.flat.buckets, at(stage_.gathers, block).bucket);
  const Tensor weights = slab_.at("weights");
  return {static_cast<std::byte*>(weights.data) + at(places_.blocks, block), Shape{bucket.length},
          contents_.compute, weights.device};
}

Tensor ParamStore::block_bytes(int block) const {
  const GatherBlock& planned = at(stage_.gathers, block);
  const std::int64_t bytes =
      lay_residents(planned.parameters, table(), stage_.flat, nullptr, contents_.compute).back();
  const std::int64_t begin = at(places_.blocks, block);
  return slab_.at("weights").slice(begin, begin + bytes);
}

Tensor ParamStore::host_block(int block) const {
  const std::int64_t begin = at(places_.host, block);
  return host_.at("weights").slice(begin, begin + block_bytes(block).numel());
}

Tensor ParamStore::part_of(const std::string& buffer, std::int64_t begin, int parameter,
                           const Slice& part) const {
  const Tensor all = slab_.at(buffer);
  if (part.length() == 0) return all.slice(0, 0);  // an empty part has no place
  const Tensor values = all.slice(begin, begin + part.length());
  const Shape& shape = at(table(), parameter).shape;
  return part.length() == shape.numel() ? values.view(shape) : values;
}

Tensor ParamStore::master(int parameter) const {
  const Slice own = owned(parameter);
  const Tensor whole = resident(parameter);
  if (place(parameter).is_master) {
    return own.length() == whole.numel() ? whole : part_in(whole, own);
  }
  const Tensor masters = slab_.at("masters");
  const Tensor part{static_cast<std::byte*>(masters.data) + place(parameter).master,
                    {own.length()},
                    at(table(), parameter).master,
                    masters.device};
  return own.length() == whole.numel() ? part.view(whole.shape) : part;
}

Tensor ParamStore::rounded(int parameter) const {
  if (place(parameter).is_master || place(parameter).freed) return {};
  return part_in(resident(parameter), owned(parameter));
}

Tensor ParamStore::state(int parameter, int state) const {
  const Slice part = owned(parameter);
  if (part.begin == part.end) return {};
  if (state_types_.empty() || state >= std::ssize(at(state_types_, parameter))) return {};
  const Tensor all = slab_.at("state" + std::to_string(state));
  return {static_cast<std::byte*>(all.data) + at(at(states_.begin, parameter), state),
          {part.length()},
          at(at(state_types_, parameter), state),
          all.device};
}

Tensor ParamStore::average(int parameter) const {
  if (average_decay_ == 0) return {};
  return state(parameter, static_cast<int>(at(state_types_, parameter).size()) - 1);  // the last
}

void ParamStore::begin_averages() const {
  for (int i = 0; i < static_cast<int>(table().size()); ++i) {
    const Tensor kept = average(i);
    if (kept.empty()) continue;
    const HostValues weights(master(i).view({kept.numel()}));
    const HostValues begun(kept);
    load_floats(weights.values(), begun.values().as<float>());
    begun.store();
  }
}

Tensor ParamStore::gradient(int parameter) const {
  return part_of(repeats(parameter) ? "sums" : "gradients", place(parameter).sum, parameter,
                 at(ownership().parameters, parameter).summed);
}

Tensor ParamStore::owned_gradient(int parameter) const {
  const Slice own = owned(parameter);
  const Slice summed = at(ownership().parameters, parameter).summed;
  return part_in(gradient(parameter), {own.begin - summed.begin, own.end - summed.begin});
}

Tensor ParamStore::made_gradient(int parameter) const {
  const std::int64_t begin = place(parameter).gradient;
  return made_gradients().slice(begin, begin + at(table(), parameter).shape.numel());
}

Tensor ParamStore::made_bucket(int bucket) const {
  const std::int64_t begin = at(places_.buckets, bucket);
  return made_gradients().slice(begin, begin + at(stage_.flat.buckets, bucket).length);
}

namespace {

bool same_pieces(const ParamSpec& parameter, const Mesh& mesh, std::int64_t a, std::int64_t b) {
  return std::ranges::equal(
      shard_pieces(parameter, mesh, a), shard_pieces(parameter, mesh, b),
      [](const BoxRun& x, const BoxRun& y) { return x.from == y.from && x.length == y.length; });
}

std::uint64_t hash_values(const Tensor& values, std::uint64_t hash) {
  const HostValues on_host(values);
  return fnv1a(
      {static_cast<const char*>(on_host.values().data), static_cast<std::size_t>(values.bytes())},
      hash);
}

/// The ranks whose hash differs from that of the first rank.
std::string who_differs(const std::vector<std::uint64_t>& hashes, const std::vector<int>& ranks) {
  std::string names;
  for (std::size_t i = 1; i < hashes.size(); ++i) {
    if (hashes[i] != hashes[0]) names += (names.empty() ? "" : ", ") + std::to_string(ranks[i]);
  }
  return names;
}

}  // namespace

std::vector<int> holders_of(const ParamSpec& parameter, const Mesh& mesh, std::int64_t rank) {
  std::vector<int> homes{static_cast<int>(rank)};
  if (parameter.two_homes) {
    const std::vector<int> stages = mesh.group(rank, Axis::pp);
    homes.assign({stages.front()});
    if (stages.size() > 1) homes.push_back(stages.back());
  }
  std::vector<int> ranks;
  for (const int home : homes) {
    for (const int replica : mesh.group(home, {Axis::cp, Axis::dp})) {
      for (const int other : mesh.group(replica, Axis::tp)) {
        if (same_pieces(parameter, mesh, rank, other)) ranks.push_back(other);
      }
    }
  }
  std::ranges::sort(ranks);
  return ranks;
}

/// Parameters whose parts on this rank are held by the same ranks.
struct ReplicaCheck::Shared {
  std::vector<int> ranks;
  std::vector<int> parameters;
  std::unique_ptr<Group> group;
};

ReplicaCheck::ReplicaCheck(const Plan& plan, const ParamStore& store, World& world)
    : store_(store), shards_(plan.stage_of(world.rank()).shards) {
  std::map<std::vector<int>, std::vector<int>> by_ranks;
  for (int i = 0; i < static_cast<int>(store.table().size()); ++i) {
    by_ranks[holders_of(at(store.table(), i), plan.mesh, world.rank())].push_back(i);
  }
  // Every rank forms its groups in the same order, which avoids a deadlock.
  for (auto& [ranks, parameters] : by_ranks) {
    if (ranks.size() == 1) continue;
    shared_.push_back({ranks, parameters, world.group("replicas", ranks)});
  }
}

ReplicaCheck::~ReplicaCheck() = default;

std::uint64_t ReplicaCheck::hash_of(std::span<const int> parameters) const {
  std::uint64_t hash = fnv_offset;
  for (const int index : parameters) {
    if (store_.stays(index)) hash = hash_values(store_.resident(index), hash);
    const bool whole = at(shards_, index).kind == ShardKind::whole;
    if (whole) hash = hash_values(store_.master(index), hash);
  }
  return hash;
}

void ReplicaCheck::run(std::int64_t completed_steps) const {
  for (const Shared& shared : shared_) {
    const auto whole = gather_values(*shared.group, hash_of(shared.parameters));
    if (who_differs(whole, shared.ranks).empty()) continue;
    for (const int index : shared.parameters) {
      const auto hashes = gather_values(*shared.group, hash_of({&index, 1}));
      const std::string ranks = who_differs(hashes, shared.ranks);
      if (ranks.empty()) continue;
      throw Error(
          ExitCode::peer,
          formatted("after step {} the replicas of {} differ: rank(s) {} do not hold the "
                    "values of rank {}",
                    completed_steps, at(store_.table(), index).name, ranks, shared.ranks.front()));
    }
  }
}

namespace {

enum Tag : int { request_tag = 1, part_tag };

constexpr std::int64_t no_more = -1;     // the request that ends the exchange
constexpr std::int64_t still_here = -2;  // a sign that rank 0 still works

constexpr std::chrono::milliseconds between_signs{200};

}  // namespace

/// A thread of rank 0 that tells the other ranks that rank 0 still works.
class WholeParams::Signs {
 public:
  Signs(Group& everyone, double deadline)
      : everyone_(everyone),
        deadline_(deadline),
        worker_(longest_idle(everyone)),
        thread_([this] { work(); }) {}
  ~Signs() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Signs(const Signs&) = delete;
  Signs& operator=(const Signs&) = delete;

 private:
  void work() {
    set_log_rank(everyone_.rank(), everyone_.size());
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, between_signs, [this] { return closing_; })) {
      lock.unlock();
      if (worker_.is_stuck()) end_stuck("weights", worker_.idle_seconds());
      if (!tell()) return;
      lock.lock();
    }
  }

  /// Sends every rank a sign. False if one is lost; the next wait for that rank reports it.
  bool tell() {
    try {
      std::int64_t sign = still_here;
      for (int rank = 1; rank < everyone_.size(); ++rank) {
        await(everyone_.send(host_tensor(&sign, 1), rank, request_tag, stream_), deadline_,
              [] { return "the message with a sign of rank 0"; });
      }
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  Group& everyone_;
  const double deadline_;
  WorkingThread worker_;
  Stream stream_{DeviceKind::cpu, "signs", Stream::Mode::run_inline};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

/// The part of a parameter that a rank owns.
struct WholeParams::Part {
  int rank = 0;
  int index = 0;  // index in the tables of the rank's stage
  Slice owned;
};

WholeParams::WholeParams(const Plan& plan, const ParamStore& store, Group& everyone,
                         double deadline_seconds, std::span<std::byte> work)
    : plan_(plan), store_(store), everyone_(everyone), deadline_(deadline_seconds), rest_(work) {
  if (everyone.rank() != 0) return;
  find_parts();
  take_memory(work);
  if (everyone.size() > 1) signs_ = std::make_unique<Signs>(everyone, deadline_);
}

WholeParams::~WholeParams() = default;

/// Lists the parts of each parameter; one of the ranks that own the same values supplies them.
void WholeParams::find_parts() {
  for (int rank = 0; rank < everyone_.size(); ++rank) {
    const StagePlan& stage = plan_.stage_of(rank);
    const OwnershipTable table = make_ownership(plan_, rank);
    for (int i = 0; i < static_cast<int>(stage.parameters.size()); ++i) {
      const Ownership& own = at(table.parameters, i);
      if (!own.counts || own.owned.length() == 0) continue;
      parameters_[at(stage.parameters, i).name].push_back({rank, i, own.owned});
    }
  }
}

void WholeParams::take_memory(std::span<std::byte> work) {
  std::int64_t largest = 0;
  std::int64_t largest_part = 0;
  for (const auto& [name, parts] : parameters_) {
    largest = std::max(largest, spec_of(parts.front()).global_shape.numel());
    for (const Part& part : parts) {
      if (part.rank != 0) largest_part = std::max(largest_part, part.owned.length());
    }
  }
  const std::int64_t bytes = (largest + largest_part) * size_of(DType::f32);
  if (std::ssize(work) < bytes) {
    own_ = Slab(DeviceKind::cpu, {{"whole", {largest}}, {"received", {largest_part}}});
    whole_ = own_.at("whole");
    received_ = own_.at("received");
    return;
  }
  auto* values = reinterpret_cast<float*>(work.data());
  whole_ = host_tensor(values, largest);
  received_ = host_tensor(values + largest, largest_part);
  rest_ = work.subspan(static_cast<std::size_t>(bytes));
}

void WholeParams::finish(const Event& event, const char* what, const std::string& name) const {
  await(event, deadline_, [&] { return "the message with " + std::string(what) + name; });
}

const ParamSpec& WholeParams::spec_of(const Part& part) const {
  return at(plan_.stage_of(part.rank).parameters, part.index);
}

/// Writes a part to its place in `whole`. `values`: the part in the type of its masters.
void WholeParams::place(const Part& part, const Tensor& values, const Tensor& whole) const {
  for (const BoxRun& piece : pieces_in(spec_of(part), plan_.mesh, part.rank, part.owned)) {
    const Tensor kept = values.view({values.numel()});
    load_floats(kept.slice(piece.to, piece.to + piece.length), whole.as<float>() + piece.from);
  }
}

Tensor WholeParams::get(const std::string& name) {
  const std::vector<Part>& parts = parameters_.at(name);
  const Part& first = parts.front();
  const ParamSpec& row = spec_of(first);
  const Shape& shape = row.global_shape;
  const bool is_here = first.rank == 0 && first.owned.length() == shape.numel();
  const bool on_host = store_.made_gradients().device == DeviceKind::cpu;
  if (is_here && on_host && row.master == DType::f32) return store_.master(first.index);
  for (const Part& part : parts) {
    if (part.rank == 0) continue;
    std::int64_t index = part.index;
    finish(everyone_.send(host_tensor(&index, 1), part.rank, request_tag, stream_),
           "the request for ", name);
  }
  const Tensor whole = whole_.slice(0, shape.numel()).view(shape);
  for (const Part& part : parts) {
    if (part.rank == 0) {
      place(part, HostValues(store_.master(part.index)).values(), whole);
      continue;
    }
    const Tensor values{received_.data, {part.owned.length()}, row.master, DeviceKind::cpu};
    finish(everyone_.receive(values, part.rank, part_tag, stream_), "a part of ", name);
    place(part, values, whole);
  }
  return whole;
}

void WholeParams::end() {
  signs_.reset();
  std::int64_t request = no_more;
  for (int rank = 1; rank < everyone_.size(); ++rank) {
    finish(everyone_.send(host_tensor(&request, 1), rank, request_tag, stream_),
           "the end of an export", "");
  }
}

void WholeParams::give() {
  std::int64_t index = no_more;
  while (true) {
    finish(everyone_.receive(host_tensor(&index, 1), 0, request_tag, stream_),
           "a request of rank 0", "");
    if (index == no_more) return;
    if (index == still_here) continue;
    const HostValues part(store_.master(static_cast<int>(index)));
    const std::string& name = at(store_.table(), static_cast<int>(index)).name;
    finish(everyone_.send(part.values(), 0, part_tag, stream_), "a part of ", name);
  }
}

}  // namespace trainctl
