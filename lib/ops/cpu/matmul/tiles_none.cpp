// Linked where the machine lacks the instructions of the tiles, or has better ones that only the
// library uses (AMX).
#include "ops/cpu/matmul/tiles.h"

namespace trainctl {

bool matmul_tiles(const OpContext&, const Matmul&) { return false; }

}  // namespace trainctl
