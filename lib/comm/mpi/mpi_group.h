// Ranks that are MPI processes; internal to comm/. MPI only carries bytes: sums use our own code,
// so they are the same as those of threads.
#pragma once

#include <array>
#include <memory>

#include "comm/host/host_group.h"
#include "comm/mpi/mpi_requests.h"

namespace trainctl {

class MpiGroup : public HostGroup {
 public:
  /// Takes over `comm`, whose rank i is world rank ranks[i].
  MpiGroup(std::string name, Members members, Traffic& traffic, MpiShared& shared, MPI_Comm comm);
  ~MpiGroup() override;

 private:
  /// A sum is split into pieces of at most piece_bytes_ per rank, so that exchange, summation and
  /// distribution of successive pieces overlap in two slots of staging memory.
  struct Cut {
    std::int64_t total;      // elements
    std::int64_t per_rank;   // elements of each rank's shard; the last may be shorter
    std::int64_t per_piece;  // elements
    std::int64_t element;    // bytes
    std::int64_t begin(int rank, std::int64_t piece) const;
    std::int64_t count(int rank, std::int64_t piece) const;
    std::int64_t pieces() const { return (per_rank + per_piece - 1) / per_piece; }
  };

  void compare_calls(const CollectiveCall& mine) override;
  void do_all_reduce(const Tensor& data) override;
  void do_reduce_scatter(const Tensor& data, const Tensor& shard) override;
  void do_all_gather(const Tensor& shard, const Tensor& data) override;
  void do_broadcast(const Tensor& data, int root) override;
  void do_all_to_all(const Tensor& send, const Tensor& receive, const Counts& counts) override;
  void do_barrier() override;
  void post(const Message& message) override;
  std::string describe(int rank) const override;
  std::string remarks() const override { return shared_.remarks(); }

  Cut cut(std::int64_t per_rank, const Tensor& data) const;
  void all_reduce_at_once(const Tensor& data);
  void gather_by_doubling(const Tensor& shard, const Tensor& data);
  void reduce_in_pieces(const Tensor& data, const Cut& cut, std::byte* out, bool distribute);
  void post_exchange(const Tensor& data, const Cut& cut, std::int64_t piece);
  void sum_piece(const Tensor& data, const Cut& cut, std::int64_t piece, std::byte* out);
  void post_distribution(const Tensor& data, const Cut& cut, std::int64_t piece);
  void have_staging();
  std::byte* staged(std::int64_t slot, int peer) const;
  void finish(MpiRequests& requests, const char* operation);

  MpiShared& shared_;
  MPI_Comm comm_;
  std::int64_t piece_bytes_;
  std::byte* staging_ = nullptr;
  std::array<MpiRequests, 2> exchanges_;
  std::array<MpiRequests, 2> distributions_;
  std::vector<const void*> sources_;
  std::vector<CollectiveCall> calls_;  // by rank, when calls are compared
};

}  // namespace trainctl
