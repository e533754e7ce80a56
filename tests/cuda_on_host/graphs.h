// Graphs of the CUDA runtime on the host: what streams are given between the begin and the end of a
// capture is kept, and put into streams again at each launch: into the launching one what the
// capture's own stream had, into a new stream of random priority what each other one had. So the
// order of a run is as free as the edges of the graph leave it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "machine.h"

namespace cuda_on_host {

class Capture {
 public:
  explicit Capture(cudaStream_t origin);

  cudaStream_t origin() const { return chains_.front().first; }
  /// Adds work that each launch puts into the stream.
  void add(cudaStream_t stream, Maker make);
  /// A place in a stream, by its number; `wait` makes the stream part of the capture.
  int record(cudaStream_t stream);
  void wait(cudaStream_t stream, int place);
  /// Nothing is captured any more: the calls of the program are not legal in a capture.
  void fail(const std::string& why) { fault_ = fault_.empty() ? why : fault_; }
  const std::string& fault() const { return fault_; }
  bool knows(cudaStream_t stream) const;
  bool ended() const { return ended_; }
  /// The streams are as before. Whether the origin waits for all work of the others.
  bool end();
  /// Under the machine's lock.
  void launch(cudaStream_t stream) const;
  /// One more graph holds what was captured, or one less: after the last of them nothing does.
  /// Events may know the capture longer.
  void hold() { ++holders_; }
  void let_go();

 private:
  struct Item {     // one of the three
    int made = -1;  // work, by its maker
    int recorded = -1;
    int awaited = -1;
  };
  using Chain = std::vector<Item>;

  Chain& chain_of(cudaStream_t stream);
  static void put(cudaStream_t stream, const Chain& chain, std::vector<Work>& works,
                  const std::vector<std::shared_ptr<Mark>>& marks);

  std::vector<std::pair<cudaStream_t, Chain>> chains_;  // the first is the origin's
  std::vector<Maker> makers_;  // in the order of the program: that of a communicator's calls
  int places_ = 0;
  int holders_ = 0;
  bool ended_ = false;
  std::string fault_;
};

/// The captures that the calling thread has begun and not ended: some calls are not legal then.
int& captures_of_thread();
/// cudaSuccess, or within a capture of the thread the error that makes it void.
cudaError_t refuse_in_capture(const char* call);

}  // namespace cuda_on_host
