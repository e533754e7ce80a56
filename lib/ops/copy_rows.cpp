#include "ops/copy_rows.h"

#include "ops/check.h"

namespace trainctl {

void copy_rows(const OpContext& context, const CopyRows& args) {
  constexpr std::string_view op = "copy_rows";
  check(
      args.rows > 0 && args.length > 0 && args.x_step >= args.length && args.y_step >= args.length,
      op, "there must be rows, at least as far apart as they are long",
      {{"x", args.x}, {"y", args.y}});
  check(!args.x.empty() && !args.y.empty() && args.x.dtype == args.y.dtype &&
            args.x.data != args.y.data &&
            args.x.numel() >= reach_of(args.rows, args.length, args.x_step) &&
            args.y.numel() >= reach_of(args.rows, args.length, args.y_step),
        op, "x and y must be different memory of one type that holds all rows",
        {{"x", args.x}, {"y", args.y}});
  dispatch(context, &Kernels::copy_rows, args, op);
}

}  // namespace trainctl
