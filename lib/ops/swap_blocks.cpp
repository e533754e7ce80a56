#include "ops/swap_blocks.h"

#include "ops/check.h"

namespace trainctl {

void swap_blocks(const OpContext& context, const SwapBlocks& args) {
  constexpr std::string_view op = "swap_blocks";
  const bool whole = args.rows > 0 && args.columns > 0 && !args.x.empty() &&
                     args.x.numel() % (args.rows * args.columns) == 0;
  check(whole && args.x.numel() == args.y.numel() && args.x.dtype == args.y.dtype &&
            args.x.data != args.y.data,
        op, "x and y must be different memory of one type, with rows x columns equal blocks",
        {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::swap_blocks, args, op);
}

}  // namespace trainctl
