// How pipeline stages exchange messages (parallel.pipeline): in batches, one by one, or overlapped
// with computation, and from which buffers. arrange_messages() in plan/schedule/schedule.h applies
// it to the order of rows.
#pragma once

#include <cstdint>

namespace trainctl {

enum class MessageMode : std::uint8_t {
  batched,     // neighbouring rows form one batch: all are posted, then its receives are awaited
  single,      // each row on its own; a receive is awaited before the next row
  overlapped,  // a receive is only posted; a separate row waits for it
};

struct MessageRules {
  MessageMode mode = MessageMode::batched;
  /// An output that is sent stays in its micro-batch's slot; otherwise each chunk has one buffer,
  /// which is free again after the send.
  bool keeps_outputs = false;
  /// Messages have a different dtype than the layers and separate buffers: a send row casts what it
  /// sends, and a receive is cast when it is awaited.
  bool casts = false;
};

}  // namespace trainctl
