// How pipeline stages exchange messages (parallel.pipeline): in batches, one by one, or beside the
// computation, and out of which buffers. What it means for the order of rows: arrange_messages() in
// plan/schedule/schedule.h.
#pragma once

#include <cstdint>

namespace trainctl {

enum class MessageMode : std::uint8_t {
  batched,     // neighbouring rows are one batch: posted together, then its receives waited for
  single,      // each row by itself; a receive is waited for before the next row
  overlapped,  // a receive is only posted, and waited for by a row of its own
};

struct MessageRules {
  MessageMode mode = MessageMode::batched;
  /// What a micro-batch sends on stays in its slot; else each chunk has one buffer, which is free
  /// again once it is sent.
  bool keeps_outputs = false;
  /// Messages have another dtype than the layers, and buffers of their own: a send row casts what
  /// it sends, a receive is cast where it is waited for.
  bool casts = false;
};

}  // namespace trainctl
