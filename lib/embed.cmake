# embed_text(target file...): makes text files part of the program. For report/codes.txt a source is written at build
# time that defines `std::string_view trainctl::embedded_codes_txt()`, the bytes of the file; who reads it declares that
# function. A change of the file rebuilds it. File names differ from each other in the whole program.
function(embed_text target)
  foreach(file IN LISTS ARGN)
    get_filename_component(from ${file} ABSOLUTE)
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
    set(to ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp)
    add_custom_command(OUTPUT ${to}
      COMMAND ${CMAKE_COMMAND} -Dfrom=${from} -Dto=${to} -Dname=${name} -P ${PROJECT_SOURCE_DIR}/lib/embed.cmake
      DEPENDS ${from} ${PROJECT_SOURCE_DIR}/lib/embed.cmake VERBATIM)
    target_sources(${target} PRIVATE ${to})
  endforeach()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)  # the command above
  file(READ ${from} text)
  file(WRITE ${to} "#include <string_view>

namespace trainctl {

std::string_view embedded_${name}();
std::string_view embedded_${name}() { return R\"embedded(${text})embedded\"; }

}  // namespace trainctl
")
endif()
