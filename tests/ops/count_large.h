// Counts blocks of 4 KiB and more that operator new hands out in this test program, to whatever
// library.
#pragma once

namespace op_test {

int large_blocks();

}  // namespace op_test
