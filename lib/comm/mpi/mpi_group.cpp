#include "comm/mpi/mpi_group.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/group_costs.h"
#include "comm/host/host_bytes.h"
#include "comm/host/sum.h"
#include "device/slab.h"

namespace trainctl {

namespace {

// Tags of the group's communicator. Messages between two ranks keep their order per tag.
enum Tag : int { exchange_tag, distribution_tag, plain_tag, call_tag, first_posted_tag };

constexpr std::int64_t at_once_bytes = 16 << 10;  // a sum so small that one exchange is quickest

}  // namespace

MpiGroup::MpiGroup(std::string name, Members members, Traffic& traffic, MpiShared& shared,
                   MPI_Comm comm)
    : HostGroup(std::move(name), std::move(members), shared.deadline, {shared.activity, traffic}),
      shared_(shared),
      comm_(comm),
      piece_bytes_(staging_piece_bytes(size())),
      exchanges_{MpiRequests(shared, comm, note()), MpiRequests(shared, comm, note())},
      distributions_{MpiRequests(shared, comm, note()), MpiRequests(shared, comm, note())},
      sources_(static_cast<std::size_t>(size())) {}

MpiGroup::~MpiGroup() {
  const bool under_way = shared_.progress.forget(posted());
  // After a failure MPI may still write to the staging memory, and freeing is collective.
  if (under_way || shared_.broken || std::uncaught_exceptions() > 0) return;
  device_release(MemoryKind::host, staging_, staging_bytes(size()));
  MPI_Comm_free(&comm_);
}

std::string MpiGroup::describe(int rank) const {
  return shared_.describe(ranks()[static_cast<std::size_t>(rank)]);
}

void MpiGroup::finish(MpiRequests& requests, const char* operation) {
  if (requests.wait()) return;
  throw Error(ExitCode::peer, late_text(operation, requests.waited(), requests.missing()));
}

/// Everybody tells everybody, so that a rank that does not come is missed by all and is the only
/// one missed.
void MpiGroup::compare_calls(const CollectiveCall& mine) {
  if (!shared_.check_collectives) return;
  calls_.resize(static_cast<std::size_t>(size()), mine);
  MpiRequests& requests = exchanges_[0];
  for (int peer = 0; peer < size(); ++peer) {
    CollectiveCall& theirs = calls_[static_cast<std::size_t>(peer)];
    if (peer != rank()) requests.receive(&theirs, sizeof theirs, peer, call_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(&mine, sizeof mine, (rank() + step) % size(), call_tag);
  }
  finish(requests, name_of(mine.operation));
  for (int peer = 0; peer < size(); ++peer) {
    const CollectiveCall& theirs = calls_[static_cast<std::size_t>(peer)];
    if (peer == rank() || theirs == mine) continue;
    shared_.broken = true;
    calls_differ(peer, theirs);
  }
}

std::int64_t MpiGroup::Cut::begin(int rank, std::int64_t piece) const {
  return rank * per_rank + piece * per_piece;
}

std::int64_t MpiGroup::Cut::count(int rank, std::int64_t piece) const {
  const std::int64_t end = std::min(total, (rank + 1) * per_rank);
  return std::clamp(end - begin(rank, piece), std::int64_t{0}, per_piece);
}

MpiGroup::Cut MpiGroup::cut(std::int64_t per_rank, const Tensor& data) const {
  const std::int64_t element = size_of(data.dtype);
  return {data.numel(), per_rank, piece_bytes_ / element, element};
}

std::byte* MpiGroup::staged(std::int64_t slot, int peer) const {
  const int place = peer < rank() ? peer : peer - 1;
  return staging_ + (slot * (size() - 1) + place) * piece_bytes_;
}

/// Groups that never sum need no staging memory. Those that do sum in the first step already.
void MpiGroup::have_staging() {
  if (staging_ != nullptr) return;
  const std::int64_t bytes = staging_bytes(size());
  staging_ = static_cast<std::byte*>(device_allocate(MemoryKind::host, bytes));
  add_memory(bytes);
}

void MpiGroup::do_all_reduce(const Tensor& data) {
  have_staging();
  if (data.bytes() <= at_once_bytes) {
    all_reduce_at_once(data);
    return;
  }
  const std::int64_t share = (data.numel() + size() - 1) / size();
  const Cut shards = cut((share + part_unit - 1) / part_unit * part_unit, data);
  reduce_in_pieces(data, shards, bytes_of(data) + shards.begin(rank(), 0) * shards.element, true);
}

void MpiGroup::do_reduce_scatter(const Tensor& data, const Tensor& shard) {
  have_staging();
  reduce_in_pieces(data, cut(shard.numel(), data), bytes_of(shard), false);
}

/// Everybody sends everything to everybody: one step instead of two.
void MpiGroup::all_reduce_at_once(const Tensor& data) {
  MpiRequests& requests = exchanges_[0];
  for (int peer = 0; peer < size(); ++peer) {
    sources_[static_cast<std::size_t>(peer)] = peer == rank() ? bytes_of(data) : staged(0, peer);
    if (peer != rank()) requests.receive(staged(0, peer), data.bytes(), peer, exchange_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(data.data, data.bytes(), (rank() + step) % size(), exchange_tag);
  }
  finish(requests, "all_reduce");
  sum_in_rank_order(data.data, sources_, data.numel(), data.dtype);
}

/// `out` receives this rank's shard of the sum. With `distribute`, every rank's shard also comes to
/// its place in `data`; `out` is this rank's place then.
void MpiGroup::reduce_in_pieces(const Tensor& data, const Cut& cut, std::byte* out,
                                bool distribute) {
  const char* operation = distribute ? "all_reduce" : "reduce_scatter";
  const std::int64_t pieces = cut.pieces();
  for (std::int64_t step = 0; step < pieces + 2; ++step) {
    if (step < pieces) post_exchange(data, cut, step);
    if (step >= 1 && step - 1 < pieces) {
      finish(exchanges_[static_cast<std::size_t>((step - 1) % 2)], operation);
      sum_piece(data, cut, step - 1, out);
      if (distribute) post_distribution(data, cut, step - 1);
    }
    if (step >= 2 && distribute) {
      finish(distributions_[static_cast<std::size_t>((step - 2) % 2)], operation);
    }
  }
}

void MpiGroup::post_exchange(const Tensor& data, const Cut& cut, std::int64_t piece) {
  MpiRequests& requests = exchanges_[static_cast<std::size_t>(piece % 2)];
  const std::int64_t mine = cut.count(rank(), piece) * cut.element;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer != rank()) requests.receive(staged(piece % 2, peer), mine, peer, exchange_tag);
  }
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    requests.send(bytes_of(data) + cut.begin(peer, piece) * cut.element,
                  cut.count(peer, piece) * cut.element, peer, exchange_tag);
  }
}

void MpiGroup::sum_piece(const Tensor& data, const Cut& cut, std::int64_t piece, std::byte* out) {
  for (int peer = 0; peer < size(); ++peer) {
    sources_[static_cast<std::size_t>(peer)] =
        peer == rank() ? bytes_of(data) + cut.begin(rank(), piece) * cut.element
                       : staged(piece % 2, peer);
  }
  sum_in_rank_order(out + piece * cut.per_piece * cut.element, sources_, cut.count(rank(), piece),
                    data.dtype);
}

void MpiGroup::post_distribution(const Tensor& data, const Cut& cut, std::int64_t piece) {
  MpiRequests& requests = distributions_[static_cast<std::size_t>(piece % 2)];
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + size() - step) % size();
    requests.receive(bytes_of(data) + cut.begin(peer, piece) * cut.element,
                     cut.count(peer, piece) * cut.element, peer, distribution_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(bytes_of(data) + cut.begin(rank(), piece) * cut.element,
                  cut.count(rank(), piece) * cut.element, (rank() + step) % size(),
                  distribution_tag);
  }
}

void MpiGroup::do_all_gather(const Tensor& shard, const Tensor& data) {
  if (gathers_by_doubling(size(), data.bytes())) {
    gather_by_doubling(shard, data);
    return;
  }
  MpiRequests& requests = exchanges_[0];
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    requests.receive(bytes_of(data) + peer * shard.bytes(), shard.bytes(), peer, plain_tag);
  }
  for (int step = 1; step < size(); ++step) {
    requests.send(shard.data, shard.bytes(), (rank() + step) % size(), plain_tag);
  }
  copy_bytes(bytes_of(data) + rank() * shard.bytes(), bytes_of(shard), shard.bytes());
  finish(requests, "all_gather");
}

/// Round by round a rank sends all that it has, its own shard and those that follow, to the rank as
/// many places before it. So shards only ever come from later ranks, and around the end from rank 0
/// on.
void MpiGroup::gather_by_doubling(const Tensor& shard, const Tensor& data) {
  MpiRequests& requests = exchanges_[0];
  const auto for_runs = [&](int first, int count, const auto& pass) {
    const int before_end = std::min(count, size() - first);
    pass(bytes_of(data) + first * shard.bytes(), before_end * shard.bytes());
    pass(bytes_of(data), (count - before_end) * shard.bytes());
  };
  copy_bytes(bytes_of(data) + rank() * shard.bytes(), bytes_of(shard), shard.bytes());
  for (int have = 1; have < size(); have *= 2) {
    const int count = std::min(have, size() - have);
    const int to = (rank() + size() - have) % size();
    const int from = (rank() + have) % size();
    for_runs(from, count, [&](std::byte* place, std::int64_t bytes) {
      requests.receive(place, bytes, from, plain_tag);
    });
    for_runs(rank(), count, [&](const std::byte* place, std::int64_t bytes) {
      requests.send(place, bytes, to, plain_tag);
    });
    finish(requests, "all_gather");
  }
}

void MpiGroup::do_broadcast(const Tensor& data, int root) {
  MpiRequests& requests = exchanges_[0];
  if (rank() == root) {
    for (int step = 1; step < size(); ++step) {
      requests.send(data.data, data.bytes(), (rank() + step) % size(), plain_tag);
    }
  } else {
    requests.receive(data.data, data.bytes(), root, plain_tag);
  }
  finish(requests, "broadcast");
}

void MpiGroup::do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) {
  MpiRequests& requests = exchanges_[0];
  const std::int64_t element = size_of(send.dtype);
  std::int64_t from = 0;
  std::int64_t to = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const std::int64_t sent = counts.send[static_cast<std::size_t>(peer)] * element;
    const std::int64_t received = counts.receive[static_cast<std::size_t>(peer)] * element;
    if (peer == rank()) {
      copy_bytes(bytes_of(receive) + to, bytes_of(send) + from, std::min(sent, received));
    } else {
      requests.receive(bytes_of(receive) + to, received, peer, plain_tag);
      requests.send(bytes_of(send) + from, sent, peer, plain_tag);
    }
    from += sent;
    to += received;
  }
  finish(requests, "all_to_all");
}

void MpiGroup::do_barrier() {
  MpiRequests& requests = exchanges_[0];
  for (int step = 1; step < size(); ++step) {
    requests.receive_sign((rank() + size() - step) % size(), plain_tag);
    requests.send_sign((rank() + step) % size(), plain_tag);
  }
  finish(requests, "barrier");
}

void MpiGroup::post(const Message& message) {
  const int tag = first_posted_tag + message.tag;
  const std::int64_t bytes = message.data.bytes();
  const auto parts =
      std::max(std::int64_t{1}, (bytes + longest_mpi_message - 1) / longest_mpi_message);
  posted().begin(message.ticket, static_cast<int>(parts));
  for (std::int64_t part = 0; part < parts; ++part) {
    std::byte* data = bytes_of(message.data) + part * longest_mpi_message;
    const std::int64_t length = std::min(longest_mpi_message, bytes - part * longest_mpi_message);
    MPI_Request request;
    if (message.sends) {
      MPI_CHECK(
          MPI_Isend(data, static_cast<int>(length), MPI_BYTE, message.peer, tag, comm_, &request));
    } else {
      MPI_CHECK(
          MPI_Irecv(data, static_cast<int>(length), MPI_BYTE, message.peer, tag, comm_, &request));
    }
    shared_.progress.add(request, posted(), message.ticket, message.sends ? -1 : length);
  }
}

}  // namespace trainctl
