# The kernels of each level (ops/cpu_level.h): the same sources, compiled with that level's instructions.
# They become one object per level in which only the table (cpu/level.h) is visible to the linker.
# Otherwise it could take an inline function or a template, of which every object has a copy, from the
# AVX-512 kernels for code that runs on every processor. The kernels' code has a section of its own, level_NAME.

include(CheckCXXSourceRuns)

# cpu_level(v3 OPTIONS -march=x86-64-v3 SOURCES elementwise.cpp ...)
function(cpu_level name)
  cmake_parse_arguments(L "" "" "OPTIONS;SOURCES" ${ARGN})
  list(TRANSFORM L_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/cpu/)
  add_library(trainctl_ops_${name} OBJECT ${L_SOURCES})
  target_link_libraries(trainctl_ops_${name} PRIVATE trainctl_options)
  set(level -O3)
  if(TRAINCTL_SANITIZE)
    set(level -O2)  # compiles in half the time
    trainctl_unity(trainctl_ops_${name})
  else()
    # Not together: what becomes inline in a kernel shall not depend on its neighbours. Headers are half
    # of the time.
    target_precompile_headers(trainctl_ops_${name} PRIVATE
      ${CMAKE_CURRENT_SOURCE_DIR}/cpu/kernels.h ${CMAKE_CURRENT_SOURCE_DIR}/elements.h)
  endif()
  # Loops marked `omp simd` become vector code; errno and floating point traps are not used.
  target_compile_options(trainctl_ops_${name} PRIVATE ${level} -fno-math-errno -fno-trapping-math
                         -fopenmp-simd ${L_OPTIONS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Constants of headers as weak symbols: objcopy cannot hide the unique ones that g++ makes otherwise.
    target_compile_options(trainctl_ops_${name} PRIVATE -fno-gnu-unique)
  endif()
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/cpu/level.ld)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/level_${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation -Wl,-T,${script}
            -o ${object}.all $<FILTER:$<TARGET_OBJECTS:trainctl_ops_${name}>,EXCLUDE,\\.gch$>
    COMMAND ${CMAKE_OBJCOPY} --redefine-sym trainctl_level=trainctl_level_${name}
            --rename-section level_text=level_${name} ${object}.all
    COMMAND ${CMAKE_OBJCOPY} --keep-global-symbol=trainctl_level_${name} ${object}.all ${object}
    COMMAND ${CMAKE_COMMAND} -E rm ${object}.all
    DEPENDS trainctl_ops_${name} $<TARGET_OBJECTS:trainctl_ops_${name}> ${script}
    COMMAND_EXPAND_LISTS VERBATIM)
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(trainctl_ops PRIVATE ${object})
endfunction()

set(every_kernel activation.cpp elementwise.cpp attention_backward.cpp attention_forward.cpp attention_sink.cpp
    cross_entropy.cpp kernels.cpp norm.cpp rope.cpp rows.cpp
    optimizer.cpp matmul/widened.cpp)
set(avx512 -march=x86-64-v4 -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 takes the undefined vectors inside its own intrinsics for ours (GCC bug 105593).
  list(APPEND avx512 -Wno-maybe-uninitialized)
endif()
cpu_level(v3 OPTIONS -march=x86-64-v3 SOURCES ${every_kernel} matmul/tiles.cpp)
if(NOT TRAINCTL_EVERY_CPU_LEVEL)
  check_cxx_source_runs("int main() {
    return __builtin_cpu_supports(\"avx512f\") && __builtin_cpu_supports(\"avx512bw\") &&
           __builtin_cpu_supports(\"avx512cd\") && __builtin_cpu_supports(\"avx512dq\") &&
           __builtin_cpu_supports(\"avx512vl\") ? 0 : 1; }" TRAINCTL_MACHINE_HAS_AVX512)
endif()
if(TRAINCTL_EVERY_CPU_LEVEL OR TRAINCTL_MACHINE_HAS_AVX512)
  cpu_level(avx512 OPTIONS ${avx512} SOURCES ${every_kernel} matmul/tiles.cpp)
  set(changed_by_bf16 attention_backward.cpp attention_forward.cpp kernels_bf16.cpp)
  cpu_level(avx512_bf16 OPTIONS ${avx512} -mavx512bf16 SOURCES ${changed_by_bf16} matmul/tiles.cpp)
  cpu_level(amx OPTIONS ${avx512} -mavx512bf16 -mamx-tile -mamx-bf16 SOURCES ${changed_by_bf16} matmul/amx.cpp)
  set_source_files_properties(cpu/levels.cpp PROPERTIES COMPILE_DEFINITIONS TRAINCTL_AVX512)
endif()
