# trainctl_unity(target): with TRAINCTL_UNITY its sources are compiled in groups, each of at most 30 files,
# which parse the headers once. So names in unnamed namespaces are unique within a library.
# Sources with SKIP_UNITY_BUILD_INCLUSION stay alone.
function(trainctl_unity target)
  if(NOT TRAINCTL_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ takes a .cpp that another file includes for a header. And a local may have a name of another file, so
  # trainctl_options leaves out -Wshadow. Builds without TRAINCTL_UNITY have both warnings.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  list(FILTER sources EXCLUDE REGEX "^\\$<")  # objects of another target
  list(LENGTH sources count)
  math(EXPR groups "(${count} + 29) / 30")
  set(place 0)
  foreach(source IN LISTS sources)
    math(EXPR group "${place} * ${groups} / ${count}")
    math(EXPR place "${place} + 1")
    get_filename_component(path ${source} ABSOLUTE BASE_DIR ${folder})
    set_property(SOURCE ${path} TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP part_${group})
  endforeach()
endfunction()

# trainctl_unity_file(sources name): with TRAINCTL_UNITY the sources of the list become one file that includes
# them. For CUDA, whose files CMake puts together only since 3.31.
function(trainctl_unity_file sources name)
  if(NOT TRAINCTL_UNITY)
    return()
  endif()
  set(text "")
  foreach(source IN LISTS ${sources})
    string(APPEND text "#include \"${source}\"\n")
  endforeach()
  set(file ${CMAKE_BINARY_DIR}/unity/${name})
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  set(${sources} ${file} PARENT_SCOPE)
endfunction()

# trainctl_common_headers(options target...): the targets get these options, and parse the standard headers once
# for all, with nlohmann's, the largest of the others. Their files have no other options: g++ 12 crashes where
# the level of optimisation differs from that of the parsed headers. With TRAINCTL_UNITY only: other builds show
# where a file leaves a header out. And not with a compiler cache, which would keep nothing of these files.
function(trainctl_common_headers options)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE ${options})
  endforeach()
  if(NOT TRAINCTL_UNITY OR TRAINCTL_CCACHE)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/unity/headers.cpp CONTENT "")
  add_library(trainctl_headers OBJECT ${CMAKE_BINARY_DIR}/unity/headers.cpp)
  target_compile_options(trainctl_headers PRIVATE ${options})
  target_link_libraries(trainctl_headers PRIVATE trainctl_options $<TARGET_NAME_IF_EXISTS:OpenMP::OpenMP_CXX>)
  target_precompile_headers(trainctl_headers PRIVATE
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <filesystem> <fstream>
    <functional> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view>
    <thread> <unordered_map> <utility> <vector> <nlohmann/json.hpp>)
  foreach(target IN LISTS ARGN)
    target_precompile_headers(${target} REUSE_FROM trainctl_headers)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # g++ no longer sees which of them are the system's, and shows its false warnings about those.
      target_compile_options(${target} PRIVATE -Wno-array-bounds -Wno-stringop-overflow)
    endif()
  endforeach()
endfunction()
