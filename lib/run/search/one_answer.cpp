#include "run/search/one_answer.h"

#include "comm/group.h"
#include "comm/values.h"

namespace trainctl {

void prepare_with_one_answer(Group& everyone, const char* what, bool searches,
                             ArrangementRequest& layout, const std::function<void()>& prepare) {
  const bool first = everyone.rank() == 0;
  // Rank 0 decides, so that ranks with different files do not wait for each other.
  if (!gather_all(everyone, searches).front()) {
    return while_others_wait(everyone, what, true, prepare);
  }
  while_others_wait(everyone, what, first, prepare);
  std::string answer = first ? layout.choice->file : "";
  broadcast_bytes(everyone, answer, 0);
  layout.answer = answer;
  while_others_wait(everyone, what, !first, prepare);
  layout.answer.clear();
}

}  // namespace trainctl
