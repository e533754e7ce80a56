// Words of the level that is being compiled.
#pragma once

#ifdef __AVX512F__
#include "ops/cpu/matmul/words_avx512.h"
#else
#include "ops/cpu/matmul/words_avx2.h"
#endif
