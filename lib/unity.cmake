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
